package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
)

// PrepOptions are the settings of Prep.
type PrepOptions struct {
	List       bool // print the formats to r.Out and do nothing else
	Format     string
	Map        []string // with format map: field=column,column
	MapFile    string   // with format map: YAML file of a Mapping
	Keep       []string // with format map: column=value,value
	What       string   // Questions, Passages, or "" for what the format gives first
	In         []string
	Out        string
	Images     string   // folder of the image store; "" is Out/images
	ImageRoots []string // folders in which images lie that rows name by relative paths
	Split      string   // overrides the rows' split
	DataSource string   // overrides the rows' data_source
	System     string   // system message of the prompt column; "" is the recipe's, without a recipe none
	Prefix     string   // text before the question in the prompt column; "" is the recipe's
	As         string   // name of the system whose verl rows are written instead of ours; the images are in them
	Cells      string   // form of the images column: CellRelative ("" means it), CellAbsolute, CellBytes
	// RequireImage leaves out questions without an image: they are none of the data
	// set and not counted.
	RequireImage bool
	Unique       bool // passages: reject those whose contents an earlier one has
	Chunk        Chunking
	DecodeImages bool    // decode every image to the end, not only its header
	Limit        int64   // rows of the source that are read; 0 is all
	MaxRejects   float64 // share of rejected rows above which Prep ends with fail.Bound

	mapping *recipe.Mapping // of format map, or of a format of the recipe
}

// Schemas of the datasets that this package writes; docs/questions.md and
// docs/passages.md describe them.
const (
	QuestionsVersion = 1
	PassagesVersion  = 1
)

// prepParams is exactly what the rows depend on beside the files.
type prepParams struct {
	Format, What, Split, DataSource, System, Prefix, Cells, Store string
	Mapping                                                       *recipe.Mapping `json:",omitempty"`
	As                                                            string          `json:",omitempty"`
	ImageRoots                                                    []string
	RequireImage                                                  bool
	DecodeImages                                                  bool         `json:",omitempty"`
	Unique                                                        bool         `json:",omitempty"`
	Chunk                                                         *chunkParams `json:",omitempty"`
	Limit                                                         int64
}

// Prep reads files of a foreign format and writes them as a questions or
// passages dataset and an image store. Rows keep their order. A row that cannot
// be used goes to the rejects with file, row and reason; a later row with the id
// of an earlier one, used or not, does too. The dataset does not depend on the
// number of shards but for where parts begin.
func Prep(ctx context.Context, r *job.Run, o PrepOptions) error {
	rec := new(recipe.Recipe)
	if r.RecipePath != "" {
		var err error
		if rec, err = r.Recipe(); err != nil {
			return err
		}
	}
	if o.List {
		return ListFormats(r.Out, rec.Mappings)
	}
	f, err := o.check(rec.Mappings)
	if err != nil {
		return err
	}
	o.System, o.Prefix = pick(o.System, rec.Protocol.System), pick(o.Prefix, rec.Protocol.UserPrefix)
	store, err := OpenStore(o.Images)
	if err != nil {
		return err
	}
	c := &canonical{format: f, store: store, opt: o}
	if c.form, err = verlFormNamed(o.As); err != nil {
		return err
	}
	if c.storePath, err = storeCell(o); err != nil {
		return err
	}
	inputs := map[string]string{}
	for i, file := range o.In {
		inputs[fmt.Sprintf("in-%03d", i)] = file
	}
	spec := job.Spec{Dir: o.Out, Schema: o.What, Version: QuestionsVersion, Inputs: inputs, Ext: "parquet", Params: prepParams{
		f.Name, o.What, o.Split, o.DataSource, o.System, o.Prefix, o.Cells, c.storePath, o.mapping, o.As, o.ImageRoots, o.RequireImage, o.DecodeImages, o.Unique, nil, o.Limit,
	}}
	in := Input{Files: o.In}
	if o.What == Passages {
		spec.Version = PassagesVersion
		rows := f.Passages(in)
		if o.Unique {
			rows = distinct(rows)
		}
		if o.Chunk.Tokens > 0 {
			k, err := newChunker(o.Chunk)
			if err != nil {
				return err
			}
			params := spec.Params.(prepParams)
			if params.Chunk, err = o.Chunk.params(); err != nil {
				return err
			}
			spec.Params, rows = params, k.chunked(rows)
		}
		return prepare(ctx, r, spec, c, in, rows, c.passage, Document.weight, newPassages, c.passageBlocks(in))
	}
	write := newTable[Question]
	if form := c.form; form != nil {
		spec.Schema = "verl-" + o.As
		write = func(w io.Writer, first int64) rowWriter[Question] { return newVerlWriter(form, w, first) }
	}
	return prepare(ctx, r, spec, c, in, f.Questions(in), c.question, Sample.weight, write, nil)
}

// rowWriter writes the rows of a part.
type rowWriter[R any] interface {
	Write(rows ...R) error
	Close() error
}

func newTable[R any](w io.Writer, _ int64) rowWriter[R] { return table.NewWriter[R](w) }

func newPassages(w io.Writer, _ int64) rowWriter[Passage] { return newPassageTable(w) }

func newPassageTable(w io.Writer) *table.Texts[Passage] {
	return table.NewTexts(w, func(p *Passage) int { return len(p.ID) + len(p.Contents) + len(p.ImageID) })
}

// check fills in defaults and refuses what cannot work.
func (o *PrepOptions) check(mappings map[string]recipe.Mapping) (Format, error) {
	f, err := o.find(mappings)
	if err != nil {
		return f, err
	}
	usage := func(format string, args ...any) (Format, error) {
		return f, fail.New(fail.Usage, "prep", "", format, args...)
	}
	if o.What == "" {
		o.What = f.gives()[0]
		if f.Passages != nil {
			o.What = Passages // Cranfield gives both
		}
	}
	if !slices.Contains(f.gives(), o.What) {
		return usage("format %s gives %s, not %q", f.Name, strings.Join(f.gives(), " and "), o.What)
	}
	switch o.Cells {
	case "":
		o.Cells = CellRelative
	case CellRelative, CellAbsolute, CellBytes:
	default:
		return usage("image cells are %s, %s or %s, not %q", CellRelative, CellAbsolute, CellBytes, o.Cells)
	}
	if o.As != "" {
		if o.What != Questions {
			return usage("--as %s is a form of questions", o.As)
		}
		o.Cells = CellBytes
	}
	if o.What != Passages && (o.Unique || o.Chunk.Tokens != 0) {
		return usage("--unique and --chunk-tokens are for passages")
	}
	if o.Chunk.Tokens < 0 || o.Chunk.Tokens > 0 && o.Chunk.Tokens < 16 {
		return usage("--chunk-tokens %d: at least 16", o.Chunk.Tokens)
	}
	if len(o.In) == 0 || o.Out == "" {
		return usage("--in and --out are needed")
	}
	if o.Limit < 0 {
		return usage("--limit %d", o.Limit)
	}
	if o.Images == "" {
		o.Images = filepath.Join(o.Out, "images")
	}
	o.In, err = inputFiles(o.In, f.Files[o.What])
	return f, err
}

// storeCell is the store's folder as image cells name it.
func storeCell(o PrepOptions) (string, error) {
	dir, err := filepath.Abs(o.Images)
	if err == nil && o.Cells == CellRelative {
		var out string
		if out, err = filepath.Abs(o.Out); err == nil {
			dir, err = filepath.Rel(out, dir)
		}
	}
	if o.Cells == CellBytes {
		dir = ""
	}
	return filepath.ToSlash(dir), fail.Wrap(fail.Usage, "prep", o.Images, err)
}

func prepare[T, R any](ctx context.Context, r *job.Run, spec job.Spec, c *canonical, in Input, rows iter.Seq2[Row[T], error],
	canon func(draft[T]) (R, error), weigh func(T) int, write func(w io.Writer, first int64) rowWriter[R],
	whole func(context.Context, *preparation[T, R], io.Writer) error) error {
	ds, err := r.Dataset(spec)
	if err != nil {
		return err
	}
	if ds.Complete() {
		return checkRejects(c.opt.Out, c.opt.MaxRejects)
	}
	if ds.DryRun() {
		return nil
	}
	total := int64(-1)
	for _, s := range ds.Todo() {
		if s.N > 1 && total < 0 {
			if total, err = count(ctx, rows, c.opt.Limit); err != nil {
				return err
			}
			if total == 0 {
				return noRows(c.opt.In)
			}
		}
		sh, err := ds.Begin(s)
		if err != nil {
			return err
		}
		if sh == nil {
			continue // another process makes it
		}
		p := preparation[T, R]{r: r, sh: sh, rows: rows, canon: canon, weigh: weigh, write: write, whole: whole, hi: -1}
		if s.N > 1 {
			p.whole = nil
			p.lo, p.hi = s.Range(total)
		} else if c.opt.Limit > 0 {
			p.hi = c.opt.Limit
		}
		err = p.run(ctx)
		if err == nil && s.N == 1 && p.in == 0 {
			err = noRows(c.opt.In)
		}
		if err == nil && s.I == 0 && spec.Schema == Questions {
			err = p.side(c.format, in)
		}
		if err == nil {
			err = c.store.Sync()
		}
		if err == nil {
			err = sh.Commit(p.ok, manifest.Counts{In: p.in, OK: p.ok})
		}
		if err != nil {
			sh.Discard()
			return err
		}
	}
	if err := ds.Seal(nil); err != nil {
		return err
	}
	return checkRejects(spec.Dir, c.opt.MaxRejects)
}

// noRows is the error of files in which nothing is: a dataset of nothing would
// hide a download that failed.
func noRows(in []string) error {
	return fail.WithHint(fail.New(fail.BadInput, "prep", in[0], "the input has no rows"), "is the file whole, and --format right? see prep --list")
}

// count goes through the rows without loading them.
func count[T any](ctx context.Context, rows iter.Seq2[Row[T], error], limit int64) (int64, error) {
	n := int64(0)
	for _, err := range rows {
		if err == nil {
			err = fail.Wrap(fail.Interrupted, "count rows", "", ctx.Err())
		}
		if err != nil {
			return 0, err
		}
		if n++; n == limit {
			break
		}
	}
	return n, nil
}

// preparation makes one shard: rows lo to hi of the source, all when hi < 0.
type preparation[T, R any] struct {
	r      *job.Run
	sh     *job.Shard
	rows   iter.Seq2[Row[T], error]
	canon  func(draft[T]) (R, error) // called for several at the same time
	weigh  func(T) int
	write  func(w io.Writer, first int64) rowWriter[R]
	whole  func(context.Context, *preparation[T, R], io.Writer) error // makes all rows in place of the above, or nil
	lo, hi int64

	in, ok   int64
	leftOut  int64
	first    error // why the first rejected row was rejected
	progress *job.Progress
}

func (p *preparation[T, R]) run(ctx context.Context) error {
	w, err := p.sh.Part()
	if err != nil {
		return err
	}
	p.progress = p.r.Progress("rows", p.hi-p.lo)
	defer p.progress.Done()
	if p.whole != nil {
		return p.whole(ctx, p, w)
	}
	out := p.write(w, p.lo)
	pipe := newBehind(p.canon, p.weigh, func(b *batch[T, R]) error { return p.take(b, out) })
	defer pipe.end()
	seen := newIDSet()
	at := int64(-1)
	for row, err := range p.rows {
		if err != nil {
			return err
		}
		if at++; p.hi >= 0 && at >= p.hi {
			break
		}
		if err := p.stopped(ctx, row.Path); err != nil {
			return err
		}
		// Rows of earlier shards count only for their ids.
		fresh := row.ID == "" || seen.add(row.ID)
		if at < p.lo {
			continue
		}
		d := draftOf(row, fresh)
		if d.err != nil && !isRowError(d.err) {
			return d.err
		}
		if err := pipe.add(d); err != nil {
			return err
		}
	}
	if err := pipe.flush(); err != nil {
		return err
	}
	if p.leftOut > 0 {
		p.r.Log.Info("questions without an image are left out", "count", p.leftOut)
	}
	if err := p.usable(); err != nil {
		return err
	}
	return out.Close()
}

// stopped says that the job is to end now.
func (p *preparation[T, R]) stopped(ctx context.Context, path string) error {
	if err := p.r.Interrupted(); err != nil {
		return err
	}
	return fail.Wrap(fail.Interrupted, "prep", path, ctx.Err())
}

// usable is the error of files of which every row was rejected.
func (p *preparation[T, R]) usable() error {
	if p.in > 0 && p.ok == 0 && p.lo == 0 {
		e := fail.New(fail.BadInput, "prep", "", "none of %d rows can be used; the first: %w", p.in, p.first)
		e.Hint = "is --format right? see prep --list"
		return e
	}
	return nil
}

// errLeftOut is of a row that the user does not want.
var errLeftOut = errors.New("left out by option")

// errIDAgain is of a row whose id an earlier one has.
var errIDAgain = errors.New("an earlier row has the same id")

// draftOf reads a row; fresh: no earlier row has its id.
func draftOf[T any](row Row[T], fresh bool) draft[T] {
	d := draft[T]{path: row.Path, n: row.N, id: row.ID}
	d.value, d.err = load(row, fresh)
	return d
}

// load reads a row of which only the id is known.
func load[T any](row Row[T], fresh bool) (value T, err error) {
	if row.Err != nil {
		return value, row.Err
	}
	if err := checkID(row.ID); err != nil {
		return value, err
	}
	if !fresh {
		return value, errIDAgain
	}
	return row.Load()
}

// take writes rows that were made, and rejects and counts the others.
func (p *preparation[T, R]) take(b *batch[T, R], out rowWriter[R]) error {
	rejected := int64(0)
	for i := range b.drafts {
		switch d := &b.drafts[i]; {
		case d.err == nil:
		case errors.Is(d.err, errLeftOut):
			p.leftOut++
			p.in--
		case !isRowError(d.err):
			return d.err
		default:
			rejected++
			p.reject(d.path, d.n, d.id, d.err)
		}
	}
	p.in += int64(len(b.drafts))
	p.ok += int64(len(b.rows))
	p.progress.Add(int64(len(b.rows)), rejected)
	return out.Write(b.rows...)
}

func (p *preparation[T, R]) reject(path string, n int64, id string, reason error) {
	if p.first == nil {
		p.first = &fail.Error{Kind: fail.BadInput, Path: path, Row: n, Sample: id, Err: reason}
	}
	p.sh.Reject(path, n, id, reason)
}

// side writes the format's further files. Lines that are left out count as rows
// that came in and were rejected.
func (p *preparation[T, R]) side(f Format, in Input) error {
	for _, name := range slices.Sorted(maps.Keys(f.Side)) {
		w, err := p.sh.Extra(name)
		if err != nil {
			return err
		}
		err = f.Side[name](in, w, func(path string, n int64, reason error) {
			p.in++
			p.reject(path, n, "", reason)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRejects compares the finished dataset's rejects with the bound.
func checkRejects(dir string, bound float64) error {
	m, err := manifest.Open(dir)
	if err != nil {
		if fail.KindOf(err) == fail.BadInput { // other shards are still to come
			return nil
		}
		return err
	}
	if c := m.Counts; c.In > 0 && float64(c.Rejected) > bound*float64(c.In) {
		e := fail.New(fail.Bound, "prep", dir, "%d of %d rows were rejected", c.Rejected, c.In)
		e.Hint = "the dataset is complete without them; the reasons are in its rejects files; mend them and add --fresh; --max-rejects moves the bound"
		return e
	}
	return nil
}
