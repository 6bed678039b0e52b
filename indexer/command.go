package indexer

import (
	"context"
	"encoding/json"
	"fmt"

	"searchloop/indexer/encoder/served"
	"searchloop/indexer/flat"
	"searchloop/internal/fail"
	"searchloop/internal/job"
)

// IndexOptions are the arguments of the index job: one of Info, Verify, Merge,
// Split and Adopt, or none of them to build.
type IndexOptions struct {
	BuildOptions
	Format    string // name of BuildOptions.Format
	Info      []string
	Verify    string
	Sample, K int
	Merge     []string
	Split     string
	Parts     int
	Adopt     string // AdoptOptions.File
	Encoder   string // of Adopt
	Server    served.Options
}

// RunIndex does what the index job was asked for.
func RunIndex(ctx context.Context, r *job.Run, o IndexOptions) error {
	asked := 0
	for _, is := range []bool{len(o.Info) > 0, o.Verify != "", len(o.Merge) > 0, o.Split != "", o.Adopt != ""} {
		if is {
			asked++
		}
	}
	need := func(what, value string) error {
		if value == "" {
			return fail.New(fail.Usage, "index", "", "%s is missing", what)
		}
		return nil
	}
	switch {
	case asked > 1:
		return fail.New(fail.Usage, "index", "", "--info, --verify, --merge, --split and --adopt exclude each other")
	case o.Adopt != "":
		if err := o.adoptOnly(); err != nil {
			return err
		}
		return Adopt(ctx, r, AdoptOptions{File: o.Adopt, Passages: o.Passages, Encoder: o.Encoder, Out: o.Out, Effort: o.FAISS.Effort, Server: o.Server})
	case len(o.Info) > 0:
		info, err := Info(o.Info...)
		if err != nil {
			return err
		}
		return tell(r, info)
	case o.Verify != "":
		v, err := Verify(ctx, o.Verify, o.Vectors, o.Sample, o.K, o.FAISS.Effort)
		if err != nil {
			return err
		}
		return tell(r, v)
	case len(o.Merge) > 0:
		if err := need("--out", o.Out); err != nil {
			return err
		}
		return Merge(o.Merge, o.Out)
	case o.Split != "":
		if err := need("--out", o.Out); err != nil {
			return err
		}
		_, err := Split(o.Split, o.Parts, o.Out)
		return err
	}
	for _, f := range [][2]string{{"--vectors", o.Vectors}, {"--passages", o.Passages}, {"--out", o.Out}} {
		if err := need(f[0], f[1]); err != nil {
			return err
		}
	}
	switch {
	case o.Format == flat.FP16.String():
		o.BuildOptions.Format = flat.FP16
	case o.FAISS.Factory == "SQfp16":
		o.BuildOptions.Format, o.FAISS.Factory = flat.FP16, ""
	case o.FAISS.Factory == "Flat":
		o.FAISS.Factory = ""
	}
	return Build(ctx, r, o.BuildOptions)
}

// tell prints what was found, once.
func tell(r *job.Run, v any) error {
	r.Result(v)
	if r.JSON {
		return nil
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fail.Wrap(fail.Bug, "index", "", err)
	}
	_, err = fmt.Fprintf(r.Out, "%s\n", text)
	return fail.Wrap(fail.Disk, "index", "", err)
}
