package rollout

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"searchloop/corpus"
	"searchloop/corpus/publish"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/kv"
	"searchloop/internal/lookup"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/rollout/live"
	"searchloop/rollout/tool"
)

// web is live search: the providers that a recipe names, each opened once, so that
// its limits hold over all it is asked for. The nil web has none.
type web struct {
	desk  *lookup.Desk
	store kv.Store
	by    map[string]*live.Provider
	shelf *live.Shelf // where crops are uploaded to; nil: nowhere
	log   *slog.Logger

	mu    sync.Mutex
	spent *job.Spending // of the shard in work; nil between shards
}

// keepDays is how long results are kept unless the recipe says otherwise; that there
// is nothing may be different soon.
const (
	keepDays  = 30
	keepEmpty = 10 * time.Minute
)

// uses says whether a recipe has a tool of that kind.
func uses(r *recipe.Recipe, kind string) bool {
	return slices.ContainsFunc(r.Tools, func(t recipe.Tool) bool { return tool.KindOf(t) == kind })
}

// kinds are what each provider of a recipe is asked for.
func kinds(r *recipe.Recipe) map[string][]live.Kind {
	out := map[string][]live.Kind{}
	add := func(name string, k ...live.Kind) {
		if name != "" {
			out[name] = append(out[name], k...)
		}
	}
	shows := func(kind string) bool {
		return slices.ContainsFunc(r.Tools, func(t recipe.Tool) bool { return tool.KindOf(t) == kind && t.Images > 0 })
	}
	if uses(r, tool.TextSearch) {
		add(r.Retrieval.Web, live.Web)
	}
	if uses(r, tool.ImageByText) {
		add(r.Retrieval.Images, live.Images)
	}
	if uses(r, tool.ImageByLens) {
		add(r.Retrieval.Lens, live.Lens)
	}
	if uses(r, tool.CropAndSearch) {
		add(r.Retrieval.Crops, live.Lens)
	}
	if uses(r, tool.Visit) || r.Retrieval.Read && uses(r, tool.TextSearch) || r.Retrieval.ReadCrops && uses(r, tool.CropAndSearch) {
		add(r.Retrieval.Pages, live.Page)
	}
	if r.Retrieval.Images != "" && shows(tool.ImageByText) || r.Retrieval.Lens != "" && shows(tool.ImageByLens) {
		add(live.Direct, live.Image)
	}
	return out
}

// openWeb opens the providers of a recipe; nil when it names none that a tool uses.
func openWeb(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options) (_ *web, err error) {
	all := kinds(rec)
	if len(all) == 0 {
		return nil, nil
	}
	w := &web{by: map[string]*live.Provider{}, log: r.Log}
	of := o.tape
	if o.frozen != nil {
		of = o.frozen
	}
	if o.Cache != "" && !of.Replays() {
		if w.store, err = kv.Open(ctx, o.Cache); err != nil {
			return nil, fail.WithHint(err, "give another --cache")
		}
	}
	w.desk = lookup.NewDesk(lookup.DeskOptions{Store: w.store, Tape: of, Run: o.Run + "/" + o.Out, Cap: o.MaxCost, Log: r.Log, Note: w.note})
	days := rec.Retrieval.KeepDays
	if days == 0 {
		days = keepDays
	}
	way := func(name string) lookup.Options {
		l := rec.Retrieval.Limits[name]
		return lookup.Options{Keep: time.Duration(days) * 24 * time.Hour, Empty: keepEmpty, Rate: l.PerSecond, Burst: l.Burst, Price: l.Price / 1000, Retry: patience}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) { // so that of several mistakes the same one is named
		w.by[name], err = live.Open(w.desk, name, live.Options{
			Gateway: rec.Retrieval.Gateways[name], Allow: rec.Retrieval.Allow, Offline: of.Replays(),
			Locale: live.Locale{Language: rec.Retrieval.Language, Country: rec.Retrieval.Country},
			Way:    way(name),
		}, all[name]...)
		if err != nil {
			w.close()
			return nil, err
		}
	}
	if rec.Retrieval.Crops == "" || of.Replays() || !uses(rec, tool.CropAndSearch) {
		return w, nil
	}
	if o.Publish.To == "" {
		w.close()
		return nil, fail.WithHint(fail.New(fail.Usage, "search for crops", "", "retrieval.crops needs a storage to which crops are uploaded"),
			"give --publish s3://BUCKET/PREFIX or https://HOST/FOLDER")
	}
	up, err := publish.NewUploader(o.Publish)
	if err != nil {
		w.close()
		return nil, err
	}
	w.shelf = live.OpenShelf(w.desk, up, way(live.Storage))
	return w, nil
}

func (w *web) close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	s := w.spent // of a shard that was not finished
	w.spent = nil
	w.mu.Unlock()
	var err error
	if s != nil {
		err = s.Close()
	}
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
	}
	return err
}

// note keeps what a provider was asked for with the shard in work.
func (w *web) note(provider string, sum manifest.Provider) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spent != nil {
		w.spent.Enter(provider, sum)
	}
}

// charge has a shard pay for what is asked from now on.
func (w *web) charge(sh *job.Shard) error {
	if w == nil {
		return nil
	}
	s, err := sh.Spending(rand.Text())
	if err != nil {
		return err
	}
	w.desk.Taken() // what came late is of the shard before
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spent = s
	return nil
}

// paid ends that, and says what all attempts at the shard have asked for.
func (w *web) paid() (map[string]manifest.Provider, error) {
	if w == nil {
		return nil, nil
	}
	w.mu.Lock()
	s := w.spent
	w.spent = nil
	w.mu.Unlock()
	sum, err := s.Sum()
	return sum, errors.Join(err, s.Close())
}

// taken is what the providers were asked for since the last time, of a job that keeps
// no shards of what it spends.
func (w *web) taken() map[string]manifest.Provider {
	if w == nil {
		return nil
	}
	return w.desk.Taken()
}

// search is text search on the web; with read its hits are the pages themselves.
func (w *web) search(rec *recipe.Recipe, t recipe.Tool, reader tool.Chatter) tool.Searcher {
	s := live.WebSearch{Provider: w.by[rec.Retrieval.Web]}
	if !rec.Retrieval.Read {
		return s
	}
	out := live.Reading{Searcher: s, Pages: w.pages(rec)}
	if reader != nil {
		out.Read = func(ctx context.Context, page, query string) (string, error) {
			return tool.Read(ctx, reader, page, query, t.Heat)
		}
	}
	return out
}

func (w *web) images(rec *recipe.Recipe, t recipe.Tool) tool.Searcher {
	return live.ImageSearch{Provider: w.by[rec.Retrieval.Images], Pictures: w.pictures(t)}
}

func (w *web) pictures(t recipe.Tool) live.Pictures {
	return live.Pictures{From: w.by[live.Direct], N: t.Images}
}

func (w *web) pages(rec *recipe.Recipe) tool.Pages {
	return live.PageReader{Provider: w.by[rec.Retrieval.Pages]}
}

// crops searches for parts of images.
func (w *web) crops(rec *recipe.Recipe, t recipe.Tool, reader tool.Chatter) tool.LookAlike {
	c := live.Crops{Provider: w.by[rec.Retrieval.Crops], Shelf: w.shelf}
	if !rec.Retrieval.ReadCrops {
		return c
	}
	c.Pages = w.pages(rec)
	if reader != nil {
		c.Read = func(ctx context.Context, page, goal string, crop []byte) (string, error) {
			return tool.Read(ctx, reader, page, goal, t.Heat, crop)
		}
	}
	return c
}

// lens is lens search for images that were published before.
func (w *web) lens(rec *recipe.Recipe, t recipe.Tool, file string, qs []corpus.Question) (tool.Reverse, error) {
	if file == "" {
		return nil, fail.WithHint(fail.New(fail.Usage, "search by lens", "", "retrieval.lens needs public addresses of the questions' images"),
			"publish them with lens --publish and give its folder as --published")
	}
	pub, err := live.ReadPublished(file)
	if err != nil {
		return nil, err
	}
	switch n := pub.Missing(qs); {
	case n > 0 && n == len(qs):
		return nil, fail.WithHint(fail.New(fail.BadInput, "search by lens", file, "no image of the questions has a public address"), "publish them with lens --publish")
	case n > 0:
		w.log.Warn("some images have no public address: nothing will be known about them", "questions", n)
	}
	return live.LensSearch{Provider: w.by[rec.Retrieval.Lens], Published: pub, Pictures: w.pictures(t)}, nil
}
