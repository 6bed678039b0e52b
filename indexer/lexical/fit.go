package lexical

import (
	"context"
	"fmt"

	"searchloop/indexer/encoder"
	"searchloop/indexer/passages"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/token"
)

// Schema of an encoder dataset: a folder of named files.
const (
	Schema  = "encoder"
	Version = 1
)

// Options are the arguments of Fit.
type Options struct {
	Passages []string // passages datasets; one encoder serves all of them
	Out      string
	Dim      int
	Seed     uint64
}

// Fit makes an encoder folder from the passages' words.
func Fit(ctx context.Context, r *job.Run, o Options) error {
	if len(o.Passages) == 0 {
		return &fail.Error{Kind: fail.Usage, Op: "fit encoder", Err: fmt.Errorf("no passages"), Hint: "--passages DIR"}
	}
	inputs := map[string]string{}
	for i, dir := range o.Passages {
		inputs[fmt.Sprintf("passages-%d", i)] = dir
	}
	ds, err := r.Dataset(job.Spec{Dir: o.Out, Schema: Schema, Version: Version, Inputs: inputs, Params: map[string]any{"dim": o.Dim, "seed": o.Seed}})
	if err != nil || ds.Complete() || ds.DryRun() {
		return err
	}
	texts, err := sample(ctx, o.Passages)
	if err != nil {
		return err
	}
	if err := Write(o.Out, texts, o.Dim, o.Seed); err != nil {
		return err
	}
	e, err := encoder.Load(o.Out, encoder.Override{})
	if err != nil {
		return err
	}
	r.Log.Info("encoder fitted", "passages", len(texts), "dim", e.Space().Dim, "digest", e.Space().Encoder[:12])
	return ds.SealFiles(Files, map[string]any{"space": e.Space(), "passages": len(texts)})
}

// Write fits an encoder to texts and writes its folder. Equal texts, dimension
// and seed give equal files.
func Write(dir string, texts []string, dim int, seed uint64) error {
	prefixed := make([]string, len(texts))
	for i, t := range texts {
		prefixed[i] = settings.PassagePrefix + t
	}
	vocab := Vocabulary(append(prefixed, settings.QueryPrefix))
	if err := writeTokenizer(dir, vocab); err != nil {
		return err
	}
	words, err := token.LoadWordPiece(dir)
	if err != nil {
		return fail.Wrap(fail.Bug, "fit encoder", dir, err)
	}
	encode := func(text string) []int32 { return words.Encode(text, maxTokens) }
	embeddings, err := Embeddings(prefixed, encode, len(vocab), dim, seed)
	if err != nil {
		return err
	}
	return writeModel(dir, embeddings, len(vocab), dim, seed)
}

// sample reads the passages of all datasets, an even sample when there are many.
func sample(ctx context.Context, dirs []string) ([]string, error) {
	var sets []*passages.Set
	var rows int64
	for _, dir := range dirs {
		s, err := passages.Open(dir)
		if err != nil {
			return nil, err
		}
		sets, rows = append(sets, s), rows+s.Rows()
	}
	if rows == 0 {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "fit encoder", Path: dirs[0], Err: fmt.Errorf("no passages to fit to"), Hint: "prep made an empty dataset"}
	}
	step := (rows + maxPassages - 1) / maxPassages
	var texts []string
	var n int64
	for _, s := range sets {
		for p, err := range s.Range(0, s.Rows()) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, fail.Wrap(fail.BadInput, "fit encoder", s.Dir, err)
			}
			if n%step == 0 {
				texts = append(texts, p.Contents)
			}
			n++
		}
	}
	return texts, nil
}
