package rollout

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/secret"
	"searchloop/internal/table"
	"searchloop/rollout/tool"
)

// rows streams a dataset of the given schema.
func rows[T any](dir, schema string, version int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		m, err := manifest.Open(dir)
		if err == nil {
			err = m.Require(dir, schema, version)
		}
		if err != nil {
			yield(*new(T), err)
			return
		}
		table.ReadDataset[T](dir)(yield)
	}
}

// readQuestions reads a questions dataset: what a rollout needs of each row.
func readQuestions(dir string) ([]corpus.Question, error) {
	var out []corpus.Question
	seen := map[string]bool{}
	for q, err := range rows[corpus.Question](dir, corpus.Questions, corpus.QuestionsVersion) {
		if err != nil {
			return nil, err
		}
		if q.ID == "" || seen[q.ID] {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "read questions", Path: dir, Row: int64(len(out) + 1), Sample: q.ID,
				Err: errors.New("the id is empty or was used before"), Hint: "run prep on the source again"}
		}
		seen[q.ID] = true
		out = append(out, corpus.Question{ID: q.ID, DataSource: q.DataSource, Category: q.Category, Text: q.Text, Answers: q.Answers, ImageIDs: q.ImageIDs})
	}
	return out, nil
}

// readLens reads the lens entries of the given questions.
func readLens(dir string, qs []corpus.Question) (map[string]corpus.LensEntry, error) {
	want := map[string]bool{}
	for _, q := range qs {
		want[q.ID] = true
	}
	out := map[string]corpus.LensEntry{}
	for e, err := range rows[corpus.LensEntry](dir, "lens", corpus.LensVersion) {
		if err != nil {
			return nil, err
		}
		if want[e.DataID] {
			out[e.DataID] = e
		}
	}
	return out, nil
}

// openGallery reads the images that crops are compared with; they lie beside the
// passages or in the run's stores.
func openGallery(r *job.Run, dir string, store *corpus.ImageStore) (tool.LookAlike, error) {
	stores := []*corpus.ImageStore{store}
	if in := filepath.Join(dir, "images"); exists(in) {
		s, err := corpus.OpenStore(in)
		if err != nil {
			return nil, err
		}
		stores = append(stores, s)
	}
	g, left, err := tool.OpenGallery(dir, stores...)
	if err != nil {
		return nil, err
	}
	if left > 0 {
		r.Log.Warn("images of the gallery that cannot be read are left out", "images", left)
	}
	return g, nil
}

// openTools opens what the recipe's tools search. close ends the indices.
func openTools(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options, qs []corpus.Question) (box *tool.Box, store *corpus.ImageStore, close func() error, err error) {
	var closers []func() error
	close = func() error {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, close())
		}
	}()
	dirs := append([]string{filepath.Join(o.Out, "images")}, o.Images...)
	for _, d := range []string{o.Questions, o.Lens} {
		if in := filepath.Join(d, "images"); d != "" && exists(in) {
			dirs = append(dirs, in)
		}
	}
	if store, err = corpus.OpenStore(dirs...); err != nil {
		return nil, nil, close, err
	}
	src := tool.Sources{Store: store}
	index := func(name, url, dir string) (tool.Searcher, error) {
		switch {
		case url != "":
			return tool.NewRemote(name, url, patience, r.Log)
		case dir == "":
			return nil, nil
		}
		x, err := indexer.Open(dir)
		if err != nil {
			return nil, err
		}
		closers = append(closers, x.Close)
		if s := x.Images(); s != nil {
			src.From = append(src.From, s)
		}
		return tool.Local{Index: x}, nil
	}
	ask := func(name, url, model, key string) (tool.Chatter, error) {
		c, err := llm.New(llm.Options{Name: name, URL: url, Model: model, Key: secret.FromEnv(key), KeyName: key, Conns: max(1, rec.Rollout.Concurrency), Log: r.Log, Retry: patience})
		if err == nil {
			err = c.Probe(ctx)
		}
		return c, err
	}
	for _, t := range rec.Tools {
		switch tool.KindOf(t) {
		case tool.TextSearch:
			src.Text, err = index("text search", rec.Retrieval.TextURL, o.TextIndex)
		case tool.ImageByText:
			src.Image, err = index("image search", rec.Retrieval.ImageURL, o.ImageIndex)
		case tool.ImageByLens:
			if o.Lens != "" {
				src.Lens, err = readLens(o.Lens, qs)
			}
		case tool.CropAndSearch:
			if o.Gallery != "" {
				src.Crops, err = openGallery(r, o.Gallery, store)
			}
		case tool.Visit:
			if len(o.Pages) > 0 {
				if src.Pages, err = tool.OpenPages(filepath.Join(o.Out, ".work"), o.Pages...); err == nil {
					closers = append(closers, src.Pages.Close)
				}
			}
			if url := rec.Retrieval.ReaderURL; url != "" && err == nil {
				src.Reader, err = ask("reader", url, rec.Retrieval.ReaderModel, ReaderKeyName)
			}
		case tool.ModelSearch:
			if url := rec.Retrieval.ModelURL; url != "" {
				src.Model, err = ask("model search", url, t.Model, ModelKeyName)
			}
		}
		if err != nil {
			return nil, nil, close, fmt.Errorf("tool %s: %w", t.Name, err)
		}
	}
	box, err = tool.New(rec.Tools, src)
	return box, store, close, err
}
