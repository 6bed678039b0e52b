package scripted

import (
	"context"

	"searchloop/corpus"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// ServeOptions say what Serve serves.
type ServeOptions struct {
	Script    string
	Questions string  // questions dataset; "" for scripts that need none
	Right     float64 // for the oracle
	Addr      string
	AddrFile  string // where the address is written once the server listens
	Model     string // "" = judge_model for the judge, scripted for others
	Faults    []string
}

// Serve serves a script until the job is asked to stop. That is its regular end,
// and no error.
func Serve(ctx context.Context, r *job.Run, o ServeOptions) error {
	opt := Options{Model: o.Model}
	if opt.Model == "" && o.Script == "judge" {
		opt.Model = "judge_model"
	}
	var err error
	if opt.Script, err = Lookup(o.Script, o.Right); err != nil {
		return err
	}
	for _, f := range o.Faults {
		fault, err := ParseFault(f)
		if err != nil {
			return err
		}
		opt.Faults = append(opt.Faults, fault)
	}
	if o.Questions != "" {
		m, err := manifest.Open(o.Questions)
		if err == nil {
			err = m.Require(o.Questions, corpus.Questions, corpus.QuestionsVersion)
		}
		if err != nil {
			return err
		}
		for q, err := range table.ReadDataset[corpus.Question](o.Questions) {
			if err != nil {
				return err
			}
			q.Prompt, q.Images = nil, nil
			opt.Questions = append(opt.Questions, q)
		}
	}
	s := New(opt)
	url, err := s.Start(o.Addr)
	if err != nil {
		return err
	}
	r.Log.Info("serving", "script", o.Script, "questions", len(opt.Questions), "at", url, "model", s.opt.Model)
	if o.AddrFile != "" {
		if err := atomicfile.WriteFile(o.AddrFile, []byte(url+"\n")); err != nil {
			return err
		}
	}
	select {
	case <-r.Stopping():
	case <-ctx.Done():
	}
	r.Log.Info("served", "requests", s.Requests())
	return fail.Wrap(fail.Service, "stop", url, s.Close(ctx))
}
