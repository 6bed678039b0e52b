//go:build cuda

package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"searchloop/indexer/flat"
	"searchloop/internal/cuda"
	"searchloop/internal/fail"
)

const (
	first    = 256       // rows that are scored without a scan, to begin with
	wanted   = 512       // candidates of a query that a run of rows shall give
	smallRun = 2048      // the shortest run that is scanned, unless less is left
	reserve  = 768 << 20 // bytes of a GPU's memory left to the driver, the kernels and others
	most     = 64 << 20  // bytes of each of two pieces of page-locked memory
	maxRows  = 1<<31 - 1<<10
)

// part is the rows [first, end) of an index on one GPU.
type part struct {
	d       *cuda.Device
	modules map[string]*cuda.Module
	kernels map[string]*cuda.Kernel
	plan    plan

	source       *flat.Set
	dim          int
	stored, scan kind
	first, end   int64
	slabs        []*slab
	passing      *slab // memory for rows that pass through
	locked       [2]unsafe.Pointer
	marks        [2]*cuda.Mark
	portable     bool // the kernels of every GPU, for tests

	// For a group of queries.
	exact, coded, base, terms, thresholds, count, ids, scores, best, small cuda.Ptr
	maps                                                                   map[mapKey]cuda.Map
}

type mapKey struct {
	p    cuda.Ptr
	rows int
}

// slab is rows on the GPU.
type slab struct {
	view
	first, n int64 // rows of the index
	rows     cuda.Ptr
	copied   cuda.Ptr     // rows as scanned; rows itself where that is the same
	header   *flat.Header // of stored bytes: what they mean
	share    float64      // candidates for one of the best, as the last searches had it
}

// newPart opens a GPU for scans of the given kinds.
func newPart(ordinal int, kinds ...kind) (*part, error) {
	d, err := cuda.Open(ordinal)
	if err != nil {
		return nil, err
	}
	modules := []string{"search"}
	for _, k := range kinds {
		if m := "search_hopper_" + k.String(); d.Major == 9 && !slices.Contains(modules, m) {
			modules = append(modules, m)
		}
	}
	p := &part{d: d, kernels: map[string]*cuda.Kernel{}, maps: map[mapKey]cuda.Map{}}
	if p.modules, err = d.Load(modules); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return p, nil
}

func (p *part) launch(name string, g cuda.Grid, args ...any) {
	k := p.kernels[name]
	if k == nil {
		module := "search"
		if k, ok := strings.CutPrefix(name, "warpgroups_"); ok {
			k, _, _ = strings.Cut(k, "_")
			module = "search_hopper_" + k
		}
		var err error
		if k, err = p.d.Kernel(p.modules[module], "search_"+name); err != nil {
			panic(&cuda.Fault{Err: err})
		}
		p.kernels[name] = k
	}
	p.d.Launch(k, g, args...)
}

// scanned is the kind of the rows that are scanned: no copy is made of rows that
// pass through, or where there is no room for it.
func (p *part) scanned() kind {
	if p.plan.copy == 0 {
		return p.stored
	}
	return p.scan
}

// take takes the memory for queries.
func (p *part) take() {
	n := int64(group)
	for _, m := range []struct {
		to    *cuda.Ptr
		bytes int64
	}{{&p.exact, n * 4 * int64(p.dim)}, {&p.coded, n * pitchOf(p.dim, f32)}, {&p.base, 4 * n}, {&p.terms, 16 * n}, {&p.thresholds, 4 * n}, {&p.count, 4 * n},
		{&p.ids, 4 * n * room}, {&p.scores, 4 * n * room}, {&p.best, 8 * n * maxK}, {&p.small, int64(8*p.dim) + 4096}} {
		*m.to = p.d.Alloc(m.bytes)
	}
}

// load takes the memory of the plan and fills it.
func (p *part) load() error {
	p.take()
	for i := range p.locked {
		p.locked[i] = p.d.AllocHost(p.staging())
	}
	pitch := pitchOf(p.dim, p.stored)
	if p.plan.chunk > 0 {
		p.passing = &slab{rows: p.d.Alloc(p.plan.chunk * pitch)}
	}
	for _, r := range p.pieces(p.first, p.first+p.plan.resident, maxRows) {
		s := &slab{first: r.From, n: r.To - r.From}
		s.rows = p.d.Alloc(s.n * pitch)
		p.slabs = append(p.slabs, s)
		if err := p.fill(context.Background(), s); err != nil {
			return err
		}
		if p.plan.copy > 0 {
			if err := p.encode(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// staging is the size of each of two pieces of page-locked memory.
func (p *part) staging() int64 {
	return max(pitchOf(p.dim, p.stored), min(most, (p.end-p.first)*pitchOf(p.dim, p.stored)))
}

// close gives everything back.
func (p *part) close() error {
	if p.d == nil {
		return nil
	}
	for _, l := range p.locked {
		if l != nil {
			p.d.FreeHost(l)
		}
	}
	d := p.d
	*p = part{}
	return d.Close()
}

// pieces cuts rows into what can be one slab: of bytes that mean the same.
func (p *part) pieces(lo, hi, most int64) (out []flat.Range) {
	var from int64
	var last []float32
	for _, f := range p.source.Files() {
		a, b := max(lo, from), min(hi, from+f.Rows)
		from += f.Rows
		if a >= b {
			continue
		}
		if n := len(out); n > 0 && sameNumbers(last, f.Trained) && out[n-1].To-out[n-1].From < most {
			take := min(b-a, most-(out[n-1].To-out[n-1].From))
			out[n-1].To += take
			a += take
		}
		for ; a < b; a += most {
			out = append(out, flat.Range{From: a, To: min(a+most, b)})
		}
		last = f.Trained
	}
	return out
}

func sameNumbers(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// fill copies a slab's rows from the files, through page-locked memory that the
// processors fill while the GPU copies, and looks at them.
func (p *part) fill(ctx context.Context, s *slab) error {
	pitch := pitchOf(p.dim, p.stored)
	step := max(1, p.staging()/pitch)
	turn := 0
	var from int64
	for _, f := range p.source.Files() {
		lo, hi := max(s.first, from)-from, min(s.first+s.n, from+f.Rows)-from
		for lo < hi {
			if err := ctx.Err(); err != nil {
				return fail.Wrap(fail.Interrupted, "search", "", err)
			}
			to := min(lo+step, hi)
			if m := p.marks[turn]; m != nil {
				p.d.Await(*m)
				p.marks[turn] = nil
			}
			bytes := (to - lo) * pitch
			pad(unsafe.Slice((*byte)(p.locked[turn]), bytes), f.Stored(lo, to), pitch, f.RowBytes())
			p.d.Fetch(s.rows+cuda.Ptr((from+lo-s.first)*pitch), p.locked[turn], int(bytes))
			m := p.d.Mark()
			p.marks[turn] = &m
			turn ^= 1
			lo = to
			s.header = &f.Header
		}
		from += f.Rows
	}
	return p.look(s)
}

// pad copies rows of the given size to rows of pitch bytes, on several processors.
func pad(dst, src []byte, pitch, size int64) {
	rows := int64(len(dst)) / pitch
	const workers = 8
	var wait sync.WaitGroup
	for w := range int64(workers) {
		wait.Go(func() {
			lo, hi := rows*w/workers, rows*(w+1)/workers
			if pitch == size {
				copy(dst[lo*pitch:hi*pitch], src[lo*size:])
				return
			}
			for r := lo; r < hi; r++ {
				n := copy(dst[r*pitch:], src[r*size:(r+1)*size])
				clear(dst[r*pitch+int64(n) : (r+1)*pitch])
			}
		})
	}
	wait.Wait()
}

// wide is a launch of a warp a row.
func (p *part) wide(rows int64) cuda.Grid {
	return cuda.Grid{X: int(max(1, min(int64(8*p.d.SMs), (rows+7)/8))), Threads: 256}
}

// look finds what bounds need to know of the rows, and refuses those that are not finite.
func (p *part) look(s *slab) error {
	at := [2]uint32{0, math.MaxUint32}
	p.d.Upload(p.small, unsafe.Pointer(&at), 8)
	p.launch("look_"+p.stored.String(), p.wide(s.n), s.rows, pitchOf(p.dim, p.stored), s.n, p.dim, p.small, p.small+4)
	p.d.Download(unsafe.Pointer(&at), p.small, 8)
	if at[1] != math.MaxUint32 && s.n > 0 {
		return p.notFinite(s.first + int64(at[1]))
	}
	// The sum of squares was rounded at every step.
	norm := 1.001 * math.Sqrt(float64(math.Float32frombits(at[0])))
	s.view = view{kind: p.stored, stored: true, norm: norm, scan: norm}
	s.copied = s.rows
	return nil
}

func (p *part) notFinite(row int64) error {
	e := &fail.Error{Kind: fail.BadInput, Op: "search", Row: row + 1, Err: errors.New("the vector holds NaN or an infinity"), Hint: "rebuild the index; the index job refuses such vectors"}
	if p.source != nil {
		for _, f := range p.source.Files() {
			if e.Path = f.Path; row < f.Rows {
				break
			}
			row -= f.Rows
		}
		e.Row = row + 1
	}
	return e
}

// encode makes the copy that is scanned.
func (p *part) encode(s *slab) error {
	pitch, opitch := pitchOf(p.dim, p.stored), pitchOf(p.dim, p.scan)
	s.copied = p.d.Alloc(s.n * opitch)
	s.stored, s.kind = false, p.scan
	trained := cuda.Ptr(0)
	if p.scan == u8 {
		trained = p.small + 64
		bits := make([]uint32, 2*p.dim)
		for i := range p.dim {
			bits[i] = math.MaxUint32
		}
		p.d.Upload(trained, unsafe.Pointer(&bits[0]), 8*p.dim)
		p.launch("ranges_"+p.stored.String(), cuda.Grid{X: 8 * p.d.SMs, Threads: 256}, s.rows, pitch, s.n, p.dim, trained, trained+cuda.Ptr(4*p.dim))
		p.d.Download(unsafe.Pointer(&bits[0]), trained, 8*p.dim)
		s.column = make([]float32, 2*p.dim)
		for i := range p.dim {
			low, high := number(bits[i]), number(bits[p.dim+i])
			s.column[i], s.column[p.dim+i] = low, high-low
		}
		if flat.NotFinite(s.column) >= 0 {
			return fail.New(fail.Usage, "copy index on GPU", "", "the numbers of a column are too far apart for bytes: scan them as stored")
		}
		p.d.Upload(trained, unsafe.Pointer(&s.column[0]), 8*p.dim)
	}
	var got [2]float32
	p.d.Clear(p.small, 8)
	p.launch("encode_"+p.stored.String()+"_"+p.scan.String(), p.wide(s.n), s.copied, opitch, s.rows, pitch, s.n, p.dim, trained, p.small, p.small+4)
	p.d.Download(unsafe.Pointer(&got), p.small, 8)
	s.lost, s.scan = 1.001*math.Sqrt(float64(got[0]))+1e-6*s.norm, 1.001*math.Sqrt(float64(got[1]))
	if !(s.lost+s.scan < math.MaxFloat32) {
		return fail.New(fail.Usage, "copy index on GPU", "", "numbers are too large for %v: scan them as stored or as bf16", p.scan)
	}
	return nil
}

// number undoes the kernels' ordered bits.
func number(b uint32) float32 {
	if b>>31 == 1 {
		return math.Float32frombits(b &^ (1 << 31))
	}
	return math.Float32frombits(^b)
}

// search finds the best rows of the part for at most group queries.
func (p *part) search(ctx context.Context, queries []float32, k int, among flat.Range) (hits [][]flat.Hit, err error) {
	g := &run{p: p, ctx: ctx, queries: queries, n: len(queries) / p.dim, k: k, next: smallRun}
	lo, hi := max(among.From, p.first), min(among.To, p.end)
	for _, s := range p.slabs {
		if err := g.slab(s, lo, hi); err != nil {
			return nil, err
		}
	}
	if lo = max(lo, p.first+p.plan.resident); p.plan.passing > 0 && lo < hi {
		for _, r := range p.pieces(lo, hi, p.plan.chunk) {
			s := p.passing
			s.first, s.n = r.From, r.To-r.From
			if err := p.fill(ctx, s); err != nil {
				return nil, err
			}
			clear(p.maps) // the same memory, another number of rows
			if err := g.slab(s, lo, hi); err != nil {
				return nil, err
			}
		}
	}
	return g.result(), nil
}

// run is a group of queries on its way over the rows.
type run struct {
	p       *part
	ctx     context.Context
	queries []float32
	n, k    int
	seen    int64 // rows so far
	next    int64 // rows of the next run
	based   cuda.Ptr
}

// slab searches the rows of s that lie in [lo, hi).
func (g *run) slab(s *slab, lo, hi int64) error {
	p := g.p
	if lo, hi = max(lo, s.first)-s.first, min(hi, s.first+s.n)-s.first; lo >= hi {
		return nil
	}
	w, err := g.begin(s)
	if err != nil {
		return err
	}
	for lo < hi {
		if err := g.ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "search", "", err)
		}
		var rows, most int64
		if g.seen < int64(g.k) { // there is no k-th best yet
			rows = min(hi-lo, max(first, 2*int64(g.k)))
			p.launch("every", cuda.Grid{X: int((rows + 255) / 256), Y: g.n, Threads: 256}, p.count, p.ids, room, g.n, uint32(lo), int(rows))
			most = rows
		} else {
			rows = min(hi-lo, g.next)
			w.scan(lo, lo+rows)
			p.launch("most", cuda.Grid{X: 1, Threads: 1024}, p.count, g.n, p.small)
			var m int32
			p.d.Download(unsafe.Pointer(&m), p.small, 4)
			if most = int64(m); most > room {
				g.next = max(room, min(rows/2, rows*room/most/2)) // as many rows as there is room for always fit
				continue
			}
			// The chance that a row is among the best so far falls as rows go by.
			s.share = max(1, float64(most)*float64(g.seen)/float64(rows)/float64(g.k))
		}
		if most > 0 {
			g.keep(s, int(most))
		}
		g.seen += rows
		lo += rows
		run := float64(max(wanted, 4*g.k)) * float64(g.seen) / (float64(g.k) * max(s.share, 2))
		g.next = int64(min(max(run, smallRun), maxRows))
	}
	return nil
}

// keep scores the candidates and keeps the best.
func (g *run) keep(s *slab, most int) {
	p := g.p
	p.launch("score_"+p.stored.String(), cuda.Grid{X: (most + 15) / 16, Y: g.n, Threads: 256, Shared: 4 * p.dim},
		p.scores, s.rows, pitchOf(p.dim, p.stored), p.dim, p.exact, g.based, p.count, p.ids, room)
	have := int(min(g.seen, int64(g.k)))
	size := 64
	for size < have+most {
		size *= 2
	}
	p.launch("select", cuda.Grid{X: g.n, Threads: min(1024, size/2), Shared: 8 * size}, p.best, have, g.k, p.count, p.ids, p.scores, room, uint32(s.first), size)
}

// scanner scans a slab for the queries of a run.
type scanner struct {
	g       *run
	s       *slab
	stream  bool // one query, past which the rows stream
	tile    int  // queries of a tile otherwise
	padded  int  // queries with those that are none
	queries cuda.Ptr
	pitch   int64
}

// begin makes the queries ready for the slab.
func (g *run) begin(s *slab) (*scanner, error) {
	p := g.p
	w := &scanner{g: g, s: s, queries: p.coded, pitch: pitchOf(p.dim, s.kind), tile: 64}
	hopper := p.d.Major == 9 && !p.portable
	w.padded = (g.n + 127) / 128 * 128
	if g.n > 64 && hopper {
		w.tile = 128
	}
	w.stream = g.n == 1 && w.shared() <= 96<<10
	exact, base := g.queries, []float32(nil)
	if p.stored == u8 {
		exact, base = s.header.Fold(g.queries)
	}
	coded, terms, ok := prepare(s.view, exact, base, p.dim, w.pitch, w.stream)
	if !ok {
		return nil, errUnfit
	}
	g.based = 0
	if base != nil {
		g.based = p.base
		p.d.Upload(p.base, unsafe.Pointer(&base[0]), 4*len(base))
	}
	p.d.Upload(p.exact, unsafe.Pointer(&exact[0]), 4*len(exact))
	p.d.Upload(p.terms, unsafe.Pointer(&terms[0]), 16*len(terms))
	if coded == nil {
		w.queries = p.exact
	} else {
		p.d.Clear(p.coded, w.padded*int(w.pitch))
		p.d.Upload(p.coded, unsafe.Pointer(&coded[0]), len(coded))
	}
	return w, nil
}

// shared is the memory a streaming block takes for its query.
func (w *scanner) shared() int {
	parts := map[kind]int{f32: 1, f16: 2, bf16: 2, u8: 1}[w.s.kind]
	return int((w.pitch+511)/512) * parts * 512
}

// scan finds the candidates among rows [lo, hi) of the slab.
func (w *scanner) scan(lo, hi int64) {
	p, k := w.g.p, w.s.kind
	whole := 0
	if k == u8 {
		whole = 1
	}
	p.launch("threshold", cuda.Grid{X: w.padded / 128, Threads: 128}, p.thresholds, p.count, p.best, w.g.k, p.terms, w.g.n, whole)
	tiles := (w.g.n + w.tile - 1) / w.tile
	switch {
	case w.stream:
		p.launch("stream_"+k.String(), cuda.Grid{X: int(min(int64(3*p.d.SMs), (hi-lo+31)/32)), Threads: 256, Shared: w.shared()},
			w.s.copied, w.pitch, lo, hi, w.queries, p.dim, p.thresholds, p.count, p.ids, room)
	case p.d.Major == 9 && !p.portable:
		stages, tileBytes, name := 4, (128+256)*128, w.tile
		blocks := int(min(int64(p.d.SMs), (hi-lo+255)/256*int64(tiles)))
		switch {
		case w.tile == 64:
			stages, tileBytes = 5, (64+256)*128
		case tiles%2 == 0: // two blocks, half of the rows for both
			name, blocks = 256, max(2, blocks&^1)
		}
		p.launch(fmt.Sprintf("warpgroups_%v_%d", k, name), cuda.Grid{X: blocks, Threads: 384, Shared: stages*tileBytes + 1024},
			p.bytes(p.coded, int64(w.padded), w.pitch, w.tile), p.bytes(w.s.copied, w.s.n, w.pitch, 128), lo, hi, int((w.pitch+127)/128), tiles, p.thresholds, p.count, p.ids, room)
	default:
		all := (hi - lo + 127) / 128 * int64(tiles)
		p.launch("tiles_"+k.String(), cuda.Grid{X: int(all), Threads: 256, Shared: 3 * (64 + 128) * 128},
			w.s.copied, w.pitch, lo, hi, p.coded, w.pitch, tiles, p.thresholds, p.count, p.ids, room)
	}
}

// bytes describes rows to the copy engine.
func (p *part) bytes(at cuda.Ptr, rows, pitch int64, box int) cuda.Map {
	if at == p.coded {
		return p.d.Bytes(at, rows, pitch, pitch, box)
	}
	key := mapKey{at, box}
	m, ok := p.maps[key]
	if !ok {
		m = p.d.Bytes(at, rows, pitch, pitch, box)
		p.maps[key] = m
	}
	return m
}

// result downloads the best.
func (g *run) result() [][]flat.Hit {
	out := make([][]flat.Hit, g.n)
	have := int(min(g.seen, int64(g.k)))
	if have == 0 {
		return out
	}
	keys := make([]uint64, g.n*g.k)
	g.p.d.Download(unsafe.Pointer(&keys[0]), g.p.best, 8*len(keys))
	for q := range out {
		out[q] = make([]flat.Hit, have)
		for i := range out[q] {
			key := keys[q*g.k+i]
			out[q][i] = flat.Hit{Row: int64(^uint32(key)), Score: number(uint32(key >> 32))}
		}
	}
	return out
}
