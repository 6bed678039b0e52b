package corpus

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// LensOptions are the settings of Lens.
type LensOptions struct {
	Cache      []string // lens caches; of entries with one data_id the last counts
	Tar        []string // archives of their images
	Roots      []string // folders in which images lie unpacked
	Questions  string   // questions dataset to compare with; "" compares nothing
	Out        string
	Images     string  // folder of the image store; "" is Out/images
	MaxMissing float64 // share of named images that may be missing before Lens ends with fail.Bound
}

// LensVersion is the version of the lens schema; see docs/lens.md.
const LensVersion = 1

// Names of the further files of a lens dataset.
const (
	LensPublished = "lens_cached_data.jsonl"
	LensReportOf  = "report.json"
)

// Lens makes a lens dataset of published caches and image archives: images go
// into the store, paths become image ids, titles stay. An image that is missing
// or broken leaves its hit without one and is reported; none is ever invented.
func Lens(ctx context.Context, r *job.Run, o LensOptions) error {
	if o.Out == "" || len(o.Cache) == 0 && o.Questions == "" {
		return fail.New(fail.Usage, "lens", "", "--out is needed, and --cache or --questions")
	}
	if o.Images == "" {
		o.Images = filepath.Join(o.Out, "images")
	}
	store, err := OpenStore(o.Images)
	if err != nil {
		return err
	}
	images, err := filepath.Abs(o.Images)
	if err != nil {
		return fail.Wrap(fail.Usage, "lens", o.Images, err)
	}
	inputs := map[string]string{"questions": o.Questions}
	for i, f := range o.Cache {
		inputs[fmt.Sprintf("cache-%03d", i)] = f
	}
	for i, f := range o.Tar {
		inputs[fmt.Sprintf("tar-%03d", i)] = f
	}
	ds, err := r.Dataset(job.Spec{
		Dir: o.Out, Schema: "lens", Version: LensVersion, Inputs: inputs, Ext: "parquet", Single: true,
		Params: struct{ Roots []string }{o.Roots},
	})
	if err != nil || ds.Complete() || ds.DryRun() {
		return err
	}
	for _, s := range ds.Todo() {
		sh, err := ds.Begin(s)
		if err != nil {
			return err
		}
		if sh == nil {
			continue
		}
		defer sh.Discard()
		l := lens{r: r, sh: sh, store: store, images: images, opt: o}
		l.report.FoundBy, l.report.Missing, l.report.QuestionsWithoutEntry = FoundBy{}, []LensMiss{}, []string{}
		if err := l.run(ctx); err != nil {
			return err
		}
		if err := ds.Seal(nil); err != nil {
			return err
		}
		r.Result(l.report)
		return l.bound()
	}
	return ds.Seal(nil)
}

// lens makes the one shard of a lens dataset.
type lens struct {
	r        *job.Run
	sh       *job.Shard
	store    *ImageStore
	images   string // absolute folder of the store
	opt      LensOptions
	unpacked *unpacked
	example  string // a name in an archive, for messages
	last     map[string]position
	found    map[string]found // by cached path
	entries  []LensEntry
	report   LensReport
}

// position is where the entry that counts stands.
type position struct {
	path string
	n    int64
}

func (l *lens) run(ctx context.Context) error {
	if err := l.unpack(ctx); err != nil {
		return err
	}
	if err := l.choose(); err != nil {
		return err
	}
	if err := l.resolve(ctx); err != nil {
		return err
	}
	if err := l.compare(); err != nil {
		return err
	}
	if err := l.write(); err != nil {
		return err
	}
	if err := l.store.Sync(); err != nil {
		return err
	}
	n := int64(len(l.entries))
	return l.sh.Commit(n, manifest.Counts{In: n + l.sh.Rejected(), OK: n})
}

func (l *lens) unpack(ctx context.Context) error {
	j, err := l.sh.Journal()
	if err != nil {
		return err
	}
	u := &unpacker{run: l.r, store: l.store, journal: j, dir: filepath.Join(l.opt.Images, ".unpack"), files: map[string]unpackedFile{}}
	u.stats.Skipped = map[string]int64{}
	for i, path := range l.opt.Tar {
		if err := u.archive(ctx, i, path); err != nil {
			return err
		}
	}
	l.unpacked, l.report.Unpacked = newUnpacked(u.files), u.stats
	for name := range u.files {
		if l.example == "" || name < l.example {
			l.example = name
		}
	}
	return nil
}

func (l *lens) write() error {
	w, err := l.sh.Part()
	if err != nil {
		return err
	}
	out := table.NewWriter[LensEntry](w)
	if err := out.Write(l.entries...); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	x, err := l.sh.Extra(LensReportOf)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(l.report, "", "  ")
	if err == nil {
		_, err = x.Write(append(text, '\n'))
	}
	return fail.Wrap(fail.Disk, "write", LensReportOf, err)
}
