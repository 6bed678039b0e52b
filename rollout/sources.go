package rollout

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"searchloop/corpus"
	"searchloop/indexer"
	"searchloop/indexer/encoder/served"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/secret"
	"searchloop/internal/table"
	"searchloop/rollout/live"
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

// asked is what a rollout needs of a question: the other columns are not read.
type asked struct {
	ID         string   `parquet:"id"`
	DataSource string   `parquet:"data_source,dict"`
	Category   string   `parquet:"category,dict"`
	Text       string   `parquet:"question"`
	Answers    []string `parquet:"answers,list"`
	ImageIDs   []string `parquet:"image_ids,list"`
}

// readQuestions reads a questions dataset.
func readQuestions(dir string) ([]corpus.Question, error) {
	var out []corpus.Question
	seen := map[string]bool{}
	for q, err := range rows[asked](dir, corpus.Questions, corpus.QuestionsVersion) {
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
func readLens(dir string, qs []corpus.Question) (tool.Entries, error) {
	want := map[string]bool{}
	for _, q := range qs {
		want[q.ID] = true
	}
	out := tool.Entries{}
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
// passages, in a store that it gives too, or in the run's stores.
func openGallery(r *job.Run, dir string, store *corpus.ImageStore) (_ tool.LookAlike, beside *corpus.ImageStore, err error) {
	stores := []*corpus.ImageStore{store}
	if in := filepath.Join(dir, "images"); exists(in) {
		if beside, err = corpus.OpenStore(in); err != nil {
			return nil, nil, err
		}
		stores = append(stores, beside)
	}
	g, left, err := tool.OpenGallery(dir, stores...)
	if err != nil {
		return nil, nil, err
	}
	if left > 0 {
		r.Log.Warn("images of the gallery that cannot be read are left out", "images", left)
	}
	return g, beside, nil
}

// openTools opens what the recipe's tools search, w for those that search the web.
// close ends the indices.
func openTools(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options, w *web, qs []corpus.Question) (box *tool.Box, store *corpus.ImageStore, close func() error, err error) {
	src, close, err := openSources(ctx, r, rec, o, w, qs)
	if err != nil {
		return nil, nil, close, err
	}
	if box, err = tool.New(rec.Tools, src); err != nil {
		return nil, nil, close, errors.Join(err, close())
	}
	return box, src.Store, close, nil
}

// openSources opens what the tools search.
func openSources(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options, w *web, qs []corpus.Question) (src tool.Sources, close func() error, err error) {
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
	store, err := corpus.OpenStore(dirs...)
	if err != nil {
		return src, close, err
	}
	src.Store = store
	index := func(name, url, dir string) (tool.Searcher, error) {
		switch {
		case url != "":
			s, err := tool.NewRemote(name, url, patience, r.Log)
			return tool.Taped{Searcher: s, Name: name, Tape: o.tape}, err
		case dir == "":
			return nil, nil
		}
		where := []indexer.Option{indexer.WithServer(served.Options{Parallel: max(1, rec.Rollout.Concurrency), Retry: patience, Log: r.Log, Tape: o.tape}), indexer.WithDevice(o.Search.Options(r.Log))}
		if o.Encoder != "" {
			where = append(where, indexer.WithEncoder(o.Encoder))
		}
		x, err := indexer.Open(ctx, dir, where...)
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
		c, err := llm.New(llm.Options{Name: name, URL: url, Model: model, Key: secret.FromEnv(key), KeyName: key, Conns: max(1, rec.Rollout.Concurrency), Log: r.Log, Retry: patience, Tape: o.tape})
		if err == nil {
			err = c.Probe(ctx)
		}
		return c, err
	}
	if rec.Retrieval.ReaderURL != "" && (rec.Retrieval.Read || rec.Retrieval.ReadCrops || uses(rec, tool.Visit)) {
		if src.Reader, err = ask("reader", rec.Retrieval.ReaderURL, rec.Retrieval.ReaderModel, ReaderKeyName); err != nil {
			return src, close, err
		}
	}
	for _, t := range rec.Tools {
		switch kind := tool.KindOf(t); {
		case kind == tool.TextSearch && rec.Retrieval.Web != "":
			src.Text = w.search(rec, t, src.Reader)
		case kind == tool.TextSearch:
			src.Text, err = index("text search", rec.Retrieval.TextURL, o.TextIndex)
		case kind == tool.ImageByText && rec.Retrieval.Images != "":
			src.Image = w.images(rec, t)
		case kind == tool.ImageByText:
			src.Image, err = index("image search", rec.Retrieval.ImageURL, o.ImageIndex)
		case kind == tool.ImageByLens && rec.Retrieval.Lens != "":
			src.Lens, err = w.lens(rec, t, o.Published, qs)
		case kind == tool.ImageByLens:
			if o.Lens != "" {
				src.Lens, err = readLens(o.Lens, qs)
			}
		case kind == tool.CropAndSearch && rec.Retrieval.Crops != "":
			src.Crops = w.crops(rec, t, src.Reader)
		case kind == tool.CropAndSearch:
			if o.Gallery != "" {
				var beside *corpus.ImageStore
				if src.Crops, beside, err = openGallery(r, o.Gallery, store); beside != nil {
					src.From = append(src.From, beside)
				}
			}
		case kind == tool.Visit:
			var all live.Chain
			if len(o.Pages) > 0 {
				var stored *tool.PageStore
				if stored, err = tool.OpenPages(filepath.Join(o.Out, ".work"), o.Pages...); err == nil {
					closers = append(closers, stored.Close)
					all = append(all, stored)
				}
			}
			if rec.Retrieval.Pages != "" {
				all = append(all, w.pages(rec))
			}
			if len(all) > 0 {
				src.Pages = all
			}
		case kind == tool.Python:
			src.Python = o.python
		case kind == tool.ModelSearch:
			if url := rec.Retrieval.ModelURL; url != "" {
				src.Model, err = ask("model search", url, t.Model, ModelKeyName)
			}
		}
		if err != nil {
			return src, close, fmt.Errorf("tool %s: %w", t.Name, err)
		}
	}
	return src, close, nil
}
