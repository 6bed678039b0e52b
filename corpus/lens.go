package corpus

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

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
	if err == nil && ds.Complete() {
		return again(r, o)
	}
	if err != nil || ds.DryRun() {
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
		l := lens{r: r, sh: sh, store: store, images: images, opt: o, found: map[string]*found{}}
		l.begin()
		if err := l.run(ctx); err != nil {
			return err
		}
		if err := ds.Seal(nil); err != nil {
			return err
		}
		r.Result(l.report.brief())
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
	example  string           // a name in an archive, for messages
	entryOf  map[string]place // the entry of a data_id that counts
	readable [][]entryAt      // of each cache, in order
	roots    []*os.Root       // of opt.Roots
	mu       sync.Mutex
	found    map[string]*found // by cached path; guarded by mu
	entries  []LensEntry
	rejected int       // by a pass that is made again
	blocks   sync.Pool // of *lensBlock
	report   LensReport
}

// begin forgets the entries that were read.
func (l *lens) begin() {
	l.entries, l.entryOf = nil, map[string]place{}
	l.report = LensReport{FoundBy: FoundBy{}, Missing: []LensMiss{}, QuestionsWithoutEntry: []string{}, Unpacked: l.report.Unpacked}
}

func (l *lens) run(ctx context.Context) error {
	if err := l.unpack(ctx); err != nil {
		return err
	}
	for _, dir := range l.opt.Roots {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return fail.Wrap(fail.BadInput, "open images", dir, err)
		}
		defer root.Close()
		l.roots = append(l.roots, root)
	}
	published, err := l.sh.Extra(LensPublished)
	if err != nil {
		return err
	}
	lines := newLineWriter(published)
	defer func() { lines.end() }()
	// In one file no id is expected twice: every entry counts, and one pass does. Where
	// that turns out wrong it was in vain.
	again := len(l.opt.Cache) > 1
	if !again {
		if again, err = l.resolve(ctx, lines, true); err != nil {
			return err
		}
	}
	if again {
		if err := lines.end(); err != nil {
			return err
		}
		if published, err = l.sh.Restart(LensPublished); err != nil {
			return err
		}
		lines = newLineWriter(published)
		l.begin()
		if err := l.choose(); err != nil {
			return err
		}
		if _, err := l.resolve(ctx, lines, false); err != nil {
			return err
		}
	}
	if err := l.compare(); err != nil {
		return err
	}
	if err := l.write(lines); err != nil {
		return err
	}
	n := int64(len(l.entries))
	return l.sh.Commit(n, manifest.Counts{In: n + l.sh.Rejected(), OK: n})
}

func (l *lens) unpack(ctx context.Context) error {
	u := &unpacker{run: l.r, store: l.store, dir: filepath.Join(l.opt.Images, ".unpack"), files: map[string]unpackedFile{}}
	u.stats.Skipped = map[string]int64{}
	if len(l.opt.Tar) > 0 { // a journal asks for the digests of all inputs
		var err error
		if u.journal, err = l.sh.Journal(); err != nil {
			return err
		}
	}
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

// write writes entries and report, the end of the published form, and makes the
// images durable, all at the same time: disk and cores are waited for once.
func (l *lens) write(lines *lineWriter) error {
	if err := lines.flush(); err != nil {
		return err
	}
	part, err := l.sh.Part()
	if err != nil {
		return err
	}
	report, err := l.sh.Extra(LensReportOf)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i, f := range []func() error{
		func() error { return l.writeEntries(part) },
		lines.end,
		l.store.Sync,
		func() error { return l.writeReport(report) },
	} {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lens) writeEntries(w io.Writer) error {
	out := table.NewTexts(w, func(e *LensEntry) int {
		n := len(e.DataID)
		for _, h := range e.Hits {
			n += len(h.Title) + len(h.ImageID) + len(h.Path)
		}
		return n
	})
	if err := out.Write(l.entries...); err != nil {
		return err
	}
	return out.Close()
}

func (l *lens) writeReport(w io.Writer) error {
	slices.SortFunc(l.report.Missing, func(a, b LensMiss) int {
		return cmp.Or(strings.Compare(a.DataID, b.DataID), a.Hit-b.Hit)
	})
	text, err := l.report.text()
	if err == nil {
		_, err = w.Write(text)
	}
	return fail.Wrap(fail.Disk, "write", LensReportOf, err)
}
