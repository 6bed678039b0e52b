package rollout

import (
	"context"
	"errors"

	"searchloop/corpus"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/tape"
	"searchloop/rollout/tool"
)

// Search is what the tools of a recipe search, opened for a job that plays no
// trajectories: local indices, stores and galleries, or live providers within their
// limits.
type Search struct {
	tool.Sources
	web   *web
	close func() error
}

// OpenSearch opens what the recipe's tools search. Of o count the folders, the cache,
// the record and the cap; images of hits go to the store in o.Out.
func OpenSearch(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options, qs []corpus.Question) (*Search, error) {
	var err error
	if o.tape, err = tape.Open(o.Record, o.Replay); err != nil {
		return nil, err
	}
	w, err := openWeb(ctx, r, rec, o)
	if err != nil {
		return nil, err
	}
	src, closeAll, err := openSources(ctx, r, rec, o, w, qs)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return &Search{src, w, closeAll}, nil
}

// Taken is what live providers were asked for since the last time.
func (s *Search) Taken() map[string]manifest.Provider { return s.web.taken() }

// Close ends indices and providers.
func (s *Search) Close() error { return errors.Join(s.close(), s.web.close()) }
