//go:build cuda

package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"searchloop/indexer/flat"
	"searchloop/indexer/flat/dots"
	"searchloop/internal/cuda"
	"searchloop/internal/fail"
)

func TestMain(m *testing.M) {
	if left := os.Getenv("SEARCHLOOP_LEAVE"); left != "" {
		occupy(left)
		return
	}
	if _, err := cuda.Open(0); err != nil && os.Getenv("GPU_REQUIRED") == "" {
		fmt.Println("tests of the GPU are left out:", err)
		absent = true
	}
	os.Exit(m.Run())
}

var absent bool

func needGPU(t testing.TB) {
	t.Helper()
	if absent {
		t.Skip("no GPU")
	}
}

// write makes files of the given numbers of rows.
func write(t testing.TB, format flat.Format, dim int, v []float32, cuts ...int) *flat.Set {
	t.Helper()
	var paths []string
	at := 0
	for i, c := range append(cuts, len(v)/dim) {
		h := flat.Header{Dim: dim, Rows: int64(c - at), Format: format}
		if format == flat.SQ8 { // every file has its own ranges
			var r flat.Ranges
			r.Add(v[at*dim:c*dim], dim)
			h.Trained = r.Trained(dim)
		}
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.index", i))
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w, err := h.Writer(f)
		if err == nil {
			err = errors.Join(w.Write(v[at*dim:c*dim]), w.Close(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		paths, at = append(paths, path), c
	}
	s, err := flat.OpenSet(paths)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func open(t testing.TB, host *flat.Set, o Options) *Set {
	t.Helper()
	o.Device, o.Log = "cuda:0", slog.New(slog.DiscardHandler)
	s, err := Open(host, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// same compares a search with the CPU's, to the bit.
func same(t *testing.T, name string, host *flat.Set, s *Set, q []float32, k int, among flat.Range) {
	t.Helper()
	want, err := host.SearchRange(context.Background(), q, k, among)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, name, host, s, q, k, among, want)
}

// equal compares a search with what it shall find.
func equal(t *testing.T, name string, host *flat.Set, s *Set, q []float32, k int, among flat.Range, want [][]flat.Hit) {
	t.Helper()
	k, among, err := host.Admit(q, k, among)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.search(context.Background(), q, k, among)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Errorf("%s, query %d: %d hits, want %d", name, i, len(got[i]), len(want[i]))
			return
		}
		for j := range want[i] {
			if got[i][j] != want[i][j] {
				t.Errorf("%s, query %d, rank %d: %v, want %v", name, i, j, got[i][j], want[i][j])
				return
			}
		}
	}
}

// ints are small whole numbers: many scores are equal.
func ints(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.IntN(7) - 3)
	}
	return v
}

func units(rng *rand.Rand, rows, dim int) []float32 {
	v := normal(rng, rows*dim, 1)
	for r := range rows {
		row := v[r*dim : (r+1)*dim]
		n := norm(row)
		for c := range row {
			row[c] = float32(float64(row[c]) / n)
		}
	}
	return v
}

// Rows and scores are the CPU's to the bit, whatever the format, the scan, the
// kernel, the numbers of rows, queries and hits; ties by row.
func TestSearchIsTheCPUs(t *testing.T) {
	needGPU(t)
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for _, c := range []struct {
		rows, dim int
		queries   []int
		k         []int
	}{
		{5, 3, []int{1, 2}, []int{1, 5, 9}}, {1000, 40, []int{1, 3, 5}, []int{1, 1000}}, {4097, 33, []int{2, 4, 17}, []int{3}},
		{20000, 128, []int{1, 4, 5, 64, 65, 300}, []int{7, 1024}}, {70001, 100, []int{1, 30, 129}, []int{5}}, {9000, 768, []int{1, 8, 130}, []int{5, 100}},
	} {
		for _, format := range []flat.Format{flat.Flat, flat.FP16, flat.SQ8} {
			for numbers, v := range map[string][]float32{"ints": ints(rng, c.rows*c.dim), "units": units(rng, c.rows, c.dim)} {
				t.Run(fmt.Sprintf("%v %s %dx%d", format, numbers, c.rows, c.dim), func(t *testing.T) {
					cuts := []int{}
					if c.rows > 100 {
						cuts = []int{c.rows / 3, c.rows / 2}
					}
					host := write(t, format, c.dim, v, cuts...)
					scans := []string{"stored", "bf16", "int8"}
					if format == flat.Flat {
						scans = append(scans, "fp16")
					} else if format == flat.SQ8 {
						scans = scans[:1]
					}
					type search struct {
						q     []float32
						n, k  int
						among flat.Range
						want  [][]flat.Hit
					}
					var searches []search
					for _, n := range c.queries {
						q := units(rng, n, c.dim)
						if numbers == "ints" {
							q = ints(rng, n*c.dim)
						}
						for _, k := range c.k {
							for _, among := range []flat.Range{flat.All, {From: int64(c.rows) / 4, To: int64(c.rows) - 1}} {
								want, err := host.SearchRange(context.Background(), q, k, among)
								if err != nil {
									t.Fatal(err)
								}
								searches = append(searches, search{q, n, k, among, want})
							}
						}
					}
					for _, scan := range scans {
						s := open(t, host, Options{Scan: scan})
						for _, portable := range []bool{false, true} {
							s.parts[0].portable = portable
							for _, x := range searches {
								equal(t, fmt.Sprintf("scan %s portable %v queries %d k %d range %v", scan, portable, x.n, x.k, x.among), host, s, x.q, x.k, x.among, x.want)
							}
						}
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// More equal or better and better rows than there is room for at once.
func TestManyCandidates(t *testing.T) {
	needGPU(t)
	rng := rand.New(rand.NewPCG(5, 6))
	const rows, dim = 60000, 16
	one, rising := units(rng, 1, dim), make([]float32, rows*dim)
	equal := make([]float32, 0, rows*dim)
	for r := range rows {
		equal = append(equal, one...)
		for c := range dim {
			rising[r*dim+c] = one[c] * (1 + float32(r)/rows)
		}
	}
	for name, v := range map[string][]float32{"equal": equal, "rising": rising} {
		host := write(t, flat.Flat, dim, v)
		s := open(t, host, Options{})
		for _, n := range []int{1, 70} {
			var q []float32
			for range n {
				q = append(q, one...)
			}
			same(t, name, host, s, q, 10, flat.All)
		}
	}
}

func TestNotFiniteRowsAreRefused(t *testing.T) {
	needGPU(t)
	v := make([]float32, 3000*8)
	for i := range v {
		v[i] = 1
	}
	host := write(t, flat.Flat, 8, v, 2000)
	path := host.Files()[1].Path
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[flat.HeaderSize+500*32+4:], []byte{0, 0, 0xc0, 0x7f})
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	bad, err := flat.OpenSet([]string{host.Files()[0].Path, path})
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	_, err = Open(bad, Options{Device: "cuda:0", Log: slog.New(slog.DiscardHandler)})
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "row 501") || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// Arguments that the CPU refuses are refused, and what the GPU does not do the CPU does.
func TestTheRest(t *testing.T) {
	needGPU(t)
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 8))
	const rows, dim = 3000, 24
	host := write(t, flat.FP16, dim, units(rng, rows, dim))
	s := open(t, host, Options{})
	for name, q := range map[string][]float32{"length": make([]float32, 7), "NaN": append(make([]float32, dim-1), float32(math.NaN()))} {
		if _, err := s.SearchRange(ctx, q, 3, flat.All); fail.KindOf(err) != fail.BadInput {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		q []float32
		k int
	}{"zeros": {make([]float32, dim), 4}, "k": {units(rng, 2, dim), 2000}, "none": {nil, 3}, "k 0": {units(rng, 1, dim), 0}, "1100 queries": {units(rng, 1100, dim), 3}} {
		want, err := host.Search(ctx, c.q, c.k)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.SearchRange(ctx, c.q, c.k, flat.All)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %d, %v", name, len(got), err)
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s: query %d differs", name, i)
			}
		}
	}
	var wait sync.WaitGroup
	for range 40 {
		q, k := units(rng, 3, dim), 1+rng.IntN(20)
		wait.Go(func() {
			want, err := host.Search(ctx, q, k)
			if err != nil {
				t.Error(err)
				return
			}
			for range 10 {
				got, err := s.SearchRange(ctx, q, k, flat.All)
				if err != nil || !slices.Equal(got[2], want[2]) || !slices.Equal(got[0], want[0]) {
					t.Errorf("at the same time: %v", err)
				}
			}
		})
	}
	wait.Wait()
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.SearchRange(stopped, units(rng, 1, dim), 1, flat.All); fail.KindOf(err) != fail.Interrupted {
		t.Errorf("cancelled: %v", err)
	}
}

// An index of one and a half times the memory it may take: most of it passes
// through. What was planned is what is taken, within 2 %.
func TestMemory(t *testing.T) {
	needGPU(t)
	rng := rand.New(rand.NewPCG(9, 10))
	const rows, dim = 1_600_000, 256
	v := units(rng, 1000, dim)
	all := make([]float32, 0, rows*dim)
	for len(all) < rows*dim {
		i := rng.IntN(len(v) - dim)
		all = append(all, v[i:i+dim]...) // windows of few numbers, which is faster to make
	}
	host := write(t, flat.Flat, dim, all, rows/3)
	bytes := int64(rows * dim * 4)
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct {
		memory int64
		scan   string
		whole  bool
	}{{0, "stored", true}, {0, "int8", true}, {bytes * 2 / 3, "stored", false}, {workBytes(dim) + 512<<20, "stored", false}} {
		open(t, write(t, flat.Flat, 8, make([]float32, 800)), Options{}).Close() // kernels are loaded
		before, _ := d.Memory()
		s := open(t, host, Options{Memory: c.memory, Scan: c.scan})
		p := s.parts[0]
		if p.plan.passing == 0 != c.whole {
			t.Errorf("%+v: %+v", c, p.plan)
		}
		same(t, fmt.Sprintf("%+v", c), host, s, units(rng, 20, dim), 5, flat.All)
		same(t, fmt.Sprintf("%+v one", c), host, s, units(rng, 1, dim), 5, flat.All)
		after, _ := d.Memory()
		planned, used := float64(p.plan.bytes()), float64(before-after)
		if t.Logf("memory %d, scan %s: planned %.0f bytes, %.0f used, off by %.2f %%", c.memory, c.scan, planned, used, 100*(used-planned)/planned); math.Abs(used-planned) > .02*planned {
			t.Errorf("planned %.0f bytes, used %.0f", planned, used)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Open(host, Options{Device: "cuda:0", Memory: 100 << 20, Log: slog.New(slog.DiscardHandler)})
	if fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "100.0 MiB are free") {
		t.Errorf("too little: %v", err)
	}
	s, err := Open(host, Options{Device: "auto", Memory: 100 << 20, Log: slog.New(slog.DiscardHandler)})
	if s != nil || err != nil {
		t.Errorf("auto with too little: %v, %v", s, err)
	}
}

// An index of one and a half times the memory of the whole GPU. It is one file of random
// rows over and over, so that it needs 4 GiB of disk, and the best rows tie with their
// copies: hits are those of the file, and of equal ones those of the lowest ids.
func TestLargerThanTheGPU(t *testing.T) {
	needGPU(t)
	dir := os.Getenv("SEARCHLOOP_LARGE")
	if dir == "" {
		t.Skip("needs 4 GiB of disk, as much memory, and minutes: SEARCHLOOP_LARGE names a folder for it")
	}
	const rows, dim = 4 << 30 / 1536, 768
	path := filepath.Join(dir, "large.index")
	defer os.Remove(path)
	if err := writeRandom(path, rows, dim); err != nil {
		t.Fatal(err)
	}
	one, err := flat.OpenSet([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	open(t, write(t, flat.FP16, 8, make([]float32, 800)), Options{}).Close() // kernels are loaded
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before, total := d.Memory()
	copies := int((total*3/2 + rows*dim*2 - 1) / (rows * dim * 2))
	host, err := flat.OpenSet(slices.Repeat([]string{path}, copies))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	begin := time.Now()
	s := open(t, host, Options{})
	loading := time.Since(begin).Seconds()
	after, _ := d.Memory()
	p := s.parts[0].plan
	planned, used := float64(p.bytes()), float64(before-after)
	t.Logf("%d rows of %d half floats: %s, %.2f times the %s of the GPU; %s held, loaded in %.1f s; planned %.0f bytes, %.0f used, off by %.2f %%",
		host.Rows(), dim, size(host.Rows()*dim*2), float64(host.Rows()*dim*2)/float64(total), size(total), size(p.rows), loading, planned, used, 100*(used-planned)/planned)
	if math.Abs(used-planned) > .02*planned {
		t.Errorf("planned %.0f bytes, used %.0f", planned, used)
	}
	rng := rand.New(rand.NewPCG(17, 18))
	for _, c := range []struct{ queries, k int }{{1, 5}, {64, 5}, {512, 200}} {
		q := units(rng, c.queries, dim)
		found, err := one.Search(t.Context(), q, c.k)
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]flat.Hit, c.queries)
		for i, hits := range found {
			for len(hits) > 0 && len(want[i]) < c.k {
				n := 1
				for n < len(hits) && hits[n].Score == hits[0].Score {
					n++
				}
				for copy := range copies {
					for _, h := range hits[:n] {
						want[i] = append(want[i], flat.Hit{Row: int64(copy)*rows + h.Row, Score: h.Score})
					}
				}
				hits = hits[n:]
			}
			want[i] = want[i][:c.k]
		}
		begin := time.Now()
		equal(t, fmt.Sprint(c), host, s, q, c.k, flat.All, want)
		took := time.Since(begin).Seconds()
		passed := float64(p.passing) * dim * 2 / 1e9
		t.Logf("%d queries, k %d: %.2f s; %.1f GB pass through, %.1f GB/s of them, %.1f GB/s of the whole", c.queries, c.k, took, passed, passed/took, float64(host.Rows())*dim*2/1e9/took)
	}
}

// writeRandom writes rows of normal half floats, no two alike.
func writeRandom(path string, rows int64, dim int) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := flat.Header{Dim: dim, Rows: rows, Format: flat.FP16}.Writer(f)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(15, 16))
	var normal [1 << 12]uint16
	for i := range normal {
		normal[i] = dots.ToHalf(float32(rng.NormFloat64() / math.Sqrt(float64(dim))))
	}
	some := make([]uint16, 4096*dim)
	for rows > 0 {
		some = some[:min(int64(len(some)), rows*int64(dim))]
		for i := 0; i < len(some); i += 4 { // dim is a multiple of 4
			r := rng.Uint64()
			some[i], some[i+1], some[i+2], some[i+3] = normal[r>>52], normal[r>>40&0xfff], normal[r>>28&0xfff], normal[r>>16&0xfff]
		}
		if err := w.WriteHalves(some); err != nil {
			return err
		}
		rows -= int64(len(some) / dim)
	}
	return w.Close()
}

// occupy is another process that takes the memory of the GPU but for so many bytes,
// until its standard input ends.
func occupy(left string) {
	n, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		panic(err)
	}
	d, err := cuda.Open(0)
	if err != nil {
		panic(err)
	}
	free, _ := d.Memory()
	d.Alloc(free - n)
	fmt.Println("occupied")
	io.Copy(io.Discard, os.Stdin)
}

// occupied lets another process take the memory, until the function that it returns is called.
func occupied(t *testing.T, left int64) (end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("SEARCHLOOP_LEAVE=%d", left))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	word := make([]byte, len("occupied"))
	if _, err := io.ReadFull(out, word); err != nil {
		t.Fatal("the other process: ", err)
	}
	return func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// whenPlanned is a log that does something once the plan is made.
type whenPlanned struct{ do func() }

func (whenPlanned) Enabled(context.Context, slog.Level) bool { return true }
func (w whenPlanned) WithAttrs([]slog.Attr) slog.Handler     { return w }
func (w whenPlanned) WithGroup(string) slog.Handler          { return w }
func (w whenPlanned) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "memory plan" {
		w.do()
	}
	return nil
}

// Another process has the memory, before the plan and after it: auto searches on the
// CPU, a GPU that was asked for by name is an error that says how much there was.
func TestMemoryIsTaken(t *testing.T) {
	needGPU(t)
	const rows, dim = 100_000, 512
	host := write(t, flat.Flat, dim, make([]float32, rows*dim)) // 195 MiB: not small
	for _, device := range []string{"auto", "cuda", "cuda:0"} {
		end := occupied(t, 900<<20) // less than a group of queries takes, beside the reserve
		s, err := Open(host, Options{Device: device, Log: slog.New(slog.DiscardHandler)})
		end()
		if s != nil || device == "auto" && err != nil || device != "auto" && (fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "are free")) {
			t.Errorf("%s, taken before: %v, %v", device, s, err)
		}
		t.Logf("%s, taken before: %v", device, err)
		end = nil
		s, err = Open(host, Options{Device: device, Log: slog.New(whenPlanned{func() {
			if end == nil {
				end = occupied(t, 64<<20)
			}
		}})})
		if end == nil {
			t.Fatal("no plan was logged")
		}
		end()
		if s != nil || device == "auto" && err != nil || device != "auto" && (err == nil || !strings.Contains(err.Error(), "GiB")) {
			t.Errorf("%s, taken after the plan: %v, %v", device, s, err)
		}
		t.Logf("%s, taken after the plan: %v", device, err)
	}
	s, err := Open(host, Options{Device: "auto", Log: slog.New(slog.DiscardHandler)})
	if s == nil || err != nil {
		t.Fatalf("once it is given back: %v, %v", s, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Several parts, here of one GPU, find what one does: equal rows by id across the
// parts, ranges that leave parts out, parts without rows.
func TestParts(t *testing.T) {
	needGPU(t)
	rng := rand.New(rand.NewPCG(19, 20))
	const dim = 48
	for _, rows := range []int{2, 1000, 30_001} {
		for _, format := range []flat.Format{flat.Flat, flat.FP16, flat.SQ8} {
			host := write(t, format, dim, ints(rng, rows*dim))
			for _, n := range []int{2, 3, 8} {
				s := &Set{host: host, o: Options{Log: slog.New(slog.DiscardHandler)}}
				if err := s.open(make([]int, n)); err != nil {
					t.Fatalf("%d rows, %v, %d parts: %v", rows, format, n, err)
				}
				for _, queries := range []int{1, 5, 70} {
					for _, among := range []flat.Range{flat.All, {From: int64(rows) / 3, To: int64(rows)/2 + 1}} {
						for _, k := range []int{1, 10, 1024} {
							same(t, fmt.Sprintf("%d rows, %v, %d parts, %d queries, k %d, %v", rows, format, n, queries, k, among), host, s, ints(rng, queries*dim), k, among)
						}
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Batches of 1 to 4,096 and k to 1,024, many scores equal, by way of the queue.
func TestBatches(t *testing.T) {
	needGPU(t)
	rng := rand.New(rand.NewPCG(21, 22))
	const rows, dim = 20_000, 64
	for _, format := range []flat.Format{flat.Flat, flat.FP16, flat.SQ8} {
		host := write(t, format, dim, ints(rng, rows*dim), rows/2)
		for _, scan := range []string{"stored", "bf16"} {
			if format == flat.SQ8 && scan != "stored" {
				continue
			}
			s := open(t, host, Options{Scan: scan})
			for _, n := range []int{1, 2, 3, 4, 7, 16, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1023, 1024, 1025, 2048, 4095, 4096} {
				for _, k := range []int{1, 5, 1024} {
					if n > 129 && k == 1024 && n != 4096 {
						continue // the CPU takes long
					}
					q := ints(rng, n*dim)
					want, err := host.Search(t.Context(), q, k)
					if err != nil {
						t.Fatal(err)
					}
					got, err := s.SearchRange(t.Context(), q, k, flat.All)
					if err != nil || len(got) != n {
						t.Fatalf("%v as %s, %d queries, k %d: %d, %v", format, scan, n, k, len(got), err)
					}
					for i := range want {
						if !slices.Equal(got[i], want[i]) {
							t.Errorf("%v as %s, %d queries, k %d: query %d differs", format, scan, n, k, i)
							break
						}
					}
				}
			}
		}
	}
}

// A GPU that fails in the middle: auto goes on with the CPU, and cuda fails.
func TestAFailingGPU(t *testing.T) {
	needGPU(t)
	rng := rand.New(rand.NewPCG(11, 12))
	const dim = 16
	host := write(t, flat.Flat, dim, units(rng, 5000, dim))
	q := units(rng, 1, dim)
	want, err := host.Search(context.Background(), q, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, auto := range []bool{true, false} {
		s := open(t, host, Options{})
		s.auto = auto
		other, err := s.parts[0].d.Load([]string{"rows"})
		if err != nil {
			t.Fatal(err)
		}
		s.parts[0].modules["search"] = other["rows"] // no kernel is found any more
		clear(s.parts[0].kernels)
		for range 2 {
			got, err := s.SearchRange(context.Background(), q, 3, flat.All)
			if auto && (err != nil || !slices.Equal(got[0], want[0])) || !auto && err == nil {
				t.Errorf("auto %v: %v, %v", auto, got, err)
			}
		}
	}
}

// 10,000 queries of float32: the rows that the CPU finds, in its order.
func TestParity(t *testing.T) {
	needGPU(t)
	if testing.Short() {
		t.Skip("long")
	}
	rng := rand.New(rand.NewPCG(13, 14))
	const rows, dim, n = 100_000, 768, 10_000
	host := write(t, flat.Flat, dim, units(rng, rows, dim))
	s := open(t, host, Options{})
	same(t, "parity", host, s, units(rng, n, dim), 5, flat.All)
}
