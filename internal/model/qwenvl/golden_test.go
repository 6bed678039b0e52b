package qwenvl

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"searchloop/internal/safetensors"
)

// The golden values come from transformers; testdata/golden.py says how.

type goldenCase struct {
	Name          string     `json:"name"`
	Tokens        []int32    `json:"tokens"`
	Grids         [][3]int32 `json:"grids"`
	Rows, Targets []int32
	A, B          []float32
	Logp, Entropy []float32
	Positions     [3][]int32
	Next          int32
	Routes        [][][]int32 // of moe.json: [sparse layer][token][k]

	patches []float32
}

type golden struct {
	Temperature float32
	Adam        struct {
		LR, Beta1, Beta2, Eps float64
		WeightDecay           float64 `json:"weight_decay"`
	}
	Cases         []goldenCase
	Interpolation []struct {
		Side    int
		Grid    [3]int32
		Indices [][4]int32
		Weights [][4]float32
	}
	VLLosses   []float64 `json:"vl_losses"`
	TextLosses []float64 `json:"text_losses"`

	// Of families.json.
	Windows []struct {
		Window, Patch int
		Grids         [][3]int32
		Index, Cu     []int32
	}
	Losses map[string][]float64

	tensors *safetensors.Model
}

func loadGolden(t testing.TB) *golden { return loadGoldens(t, "golden") }

func loadGoldens(t testing.TB, name string) *golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if g.tensors, err = safetensors.OpenFile("testdata/" + name + ".safetensors"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.tensors.Close() })
	for i := range g.Cases {
		if c := &g.Cases[i]; len(c.Grids) > 0 {
			c.patches = g.tensor(t, c.Name+".patches")
		}
	}
	return &g
}

func (g *golden) tensor(t testing.TB, name string) []float32 {
	t.Helper()
	x, err := g.tensors.Float32(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// of is the model folder of a case.
func (c *goldenCase) folder() string {
	switch {
	case c.Name == "qwen3":
		return "testdata/text"
	case c.Name == "qwen2" || c.Name == "llama":
		return "testdata/" + c.Name
	case c.Name == "moe":
		return "testdata/moe"
	case strings.HasPrefix(c.Name, "moe"):
		return "testdata/vlmoe"
	case strings.HasPrefix(c.Name, "25"):
		return "testdata/qwen25vl"
	}
	return "testdata/vl"
}

func mustLoad(t testing.TB, dir string) *Model {
	t.Helper()
	m, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// images cuts a case's patches; base is where its tokens begin in a pack.
func (c *goldenCase) images(cfg Config, base int) []Image {
	var out []Image
	at, token := 0, 0
	for _, g := range c.Grids {
		n := int(g[0] * g[1] * g[2])
		for c.Tokens[token] != cfg.ImagePadID {
			token++
		}
		out = append(out, Image{Grid: g, Patches: c.patches[at*cfg.PatchDim() : (at+n)*cfg.PatchDim()], Offset: int32(base + token)})
		at += n
		token += n / 4
	}
	return out
}

// pack joins cases into one batch and returns the rows' shift of each.
func pack(t testing.TB, cfg Config, cases ...goldenCase) (*Batch, []int32) {
	t.Helper()
	b := &Batch{CuSeqlens: []int32{0}}
	var base []int32
	for i := range cases {
		c := &cases[i]
		pos, _, err := Positions(c.Tokens, c.Grids, cfg)
		if err != nil {
			t.Fatal(err)
		}
		base = append(base, int32(len(b.Tokens)))
		b.Images = append(b.Images, c.images(cfg, len(b.Tokens))...)
		b.Tokens = append(b.Tokens, c.Tokens...)
		for a := range pos {
			b.Positions[a] = append(b.Positions[a], pos[a]...)
		}
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.Tokens)))
	}
	return b, base
}

func shifted(x []int32, by int32) []int32 {
	y := make([]int32, len(x))
	for i := range x {
		y[i] = x[i] + by
	}
	return y
}

func forward(t testing.TB, m *Model, b *Batch) *Pass {
	t.Helper()
	p, err := m.Forward(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// allLogits are the logits of every row of a pass.
func allLogits(p *Pass) []float32 {
	rows := make([]int32, p.in.rows)
	for i := range rows {
		rows[i] = int32(i)
	}
	p.ask(rows)
	var flat []float32
	for _, z := range p.m.logitsOf(p.ws, p.asked.out, len(rows)) {
		flat = append(flat, z...)
	}
	return flat
}

func near(t *testing.T, what string, got, want []float32, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	worst, at := 0.0, 0
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= worst) {
			worst, at = d, i
		}
	}
	if !(worst <= tol) {
		t.Errorf("%s: differs by %g at %d: %g, want %g", what, worst, at, got[at], want[at])
	}
}

func TestGoldenLogitsAndLogProbs(t *testing.T) {
	for _, name := range []string{"golden", "families", "moe"} {
		goldenLogits(t, loadGoldens(t, name))
	}
}

func goldenLogits(t *testing.T, g *golden) {
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			m := mustLoad(t, c.folder())
			b, _ := pack(t, m.Config(), c)
			if len(c.Grids) > 0 {
				_, next, _ := Positions(c.Tokens, c.Grids, m.Config())
				if fmt.Sprint(b.Positions, next) != fmt.Sprint(c.Positions, c.Next) {
					t.Errorf("positions %v %d, want %v %d", b.Positions, next, c.Positions, c.Next)
				}
			}
			p := forward(t, m, b)
			defer p.Release()
			near(t, "logits", allLogits(p), g.tensor(t, c.Name+".logits"), 1e-4)
			logp, entropy := p.Score(c.Rows, c.Targets, g.Temperature)
			near(t, "logp", logp, c.Logp, 1e-4)
			near(t, "entropy", entropy, c.Entropy, 1e-4)
		})
	}
}

func TestGoldenGradients(t *testing.T) {
	for _, name := range []string{"golden", "families", "moe"} {
		goldenGradients(t, loadGoldens(t, name))
	}
}

func goldenGradients(t *testing.T, g *golden) {
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			m := mustLoad(t, c.folder())
			b, _ := pack(t, m.Config(), c)
			p := forward(t, m, b)
			p.Score(c.Rows, c.Targets, g.Temperature)
			p.Backward(c.Rows, c.Targets, g.Temperature, c.A, c.B)
			p.Release()
			for _, q := range m.Params() {
				want, ok := g.gradient(t, c.Name, longName(m, q.Name))
				if !ok {
					for i, x := range q.G.Host() {
						if x != 0 {
							t.Fatalf("%s: gradient %g at %d, want none", q.Name, x, i)
						}
					}
					continue
				}
				if d := relative(q.G.Host(), want); !(d <= 1e-3) {
					t.Errorf("%s: relative difference %g", q.Name, d)
				} else if testing.Verbose() && d > 1e-4 {
					t.Logf("%s: relative difference %g", q.Name, d)
				}
			}
		})
	}
}

// gradient is the golden gradient of a parameter. transformers stacks experts in
// memory that it stores one by one: [experts, gate and up, hidden].
func (g *golden) gradient(t *testing.T, name, param string) ([]float32, bool) {
	key := name + ".grad." + param
	if _, _, ok := g.tensors.Info(key); ok {
		return g.tensor(t, key), true
	}
	before, after, ok := strings.Cut(key, ".experts.")
	number, what, _ := strings.Cut(after, ".")
	e, err := strconv.Atoi(number)
	if !ok || err != nil {
		return nil, false
	}
	stack := before + ".experts.gate_up_proj"
	if what == "down_proj.weight" {
		stack = before + ".experts.down_proj"
	}
	_, shape, ok := g.tensors.Info(stack)
	if !ok {
		return nil, false
	}
	size := shape[1] * shape[2]
	all := g.tensor(t, stack)[e*size : (e+1)*size]
	switch what {
	case "gate_proj.weight":
		all = all[:size/2]
	case "up_proj.weight":
		all = all[size/2:]
	}
	return all, true
}

// longName is a parameter's name in transformers, which saves it by another.
func longName(m *Model, name string) string {
	if rest, ok := strings.CutPrefix(name, "visual."); ok {
		return "model.visual." + rest
	}
	if rest, ok := strings.CutPrefix(name, "model."); ok && m.cfg.ShortNames {
		return "model.language_model." + rest
	}
	return name
}

// relative is |got - want| / |want|, or |got| where nothing is wanted.
func relative(got, want []float32) float64 {
	var diff, norm float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		diff += d * d
		norm += float64(want[i]) * float64(want[i])
	}
	if norm == 0 {
		return math.Sqrt(diff)
	}
	return math.Sqrt(diff / norm)
}

// adam is AdamW as torch has it, in float64.
type adam struct {
	m, v map[string][]float64
	step int
}

func (o *adam) update(g *golden, params []*Param) {
	o.step++
	a := g.Adam
	c1, c2 := 1-math.Pow(a.Beta1, float64(o.step)), 1-math.Pow(a.Beta2, float64(o.step))
	for _, p := range params {
		w, d := p.W.Host(), p.G.Host()
		if o.m[p.Name] == nil {
			o.m[p.Name], o.v[p.Name] = make([]float64, len(w)), make([]float64, len(w))
		}
		decay := 1 - a.LR*a.WeightDecay
		if p.NoDecay {
			decay = 1
		}
		for i := range w {
			x := float64(d[i])
			m := a.Beta1*o.m[p.Name][i] + (1-a.Beta1)*x
			v := a.Beta2*o.v[p.Name][i] + (1-a.Beta2)*x*x
			o.m[p.Name][i], o.v[p.Name][i] = m, v
			w[i] = float32(float64(w[i])*decay - a.LR*(m/c1)/(math.Sqrt(v/c2)+a.Eps))
		}
	}
}

func TestGoldenTenSteps(t *testing.T) {
	g := loadGolden(t)
	g.Losses = map[string][]float64{"vl": g.VLLosses, "text": g.TextLosses}
	goldenSteps(t, g)
	goldenSteps(t, loadGoldens(t, "families"))
	goldenSteps(t, loadGoldens(t, "moe"))
}

func goldenSteps(t *testing.T, g *golden) {
	for name, want := range g.Losses {
		s := struct {
			dir  string
			want []float64
		}{"testdata/" + name, want}
		m := mustLoad(t, s.dir)
		var cases []goldenCase
		for _, c := range g.Cases {
			if c.folder() == s.dir {
				cases = append(cases, c)
			}
		}
		b, base := pack(t, m.Config(), cases...)
		var rows, targets []int32
		for i, c := range cases {
			rows = append(rows, shifted(c.Rows, base[i])...)
			targets = append(targets, c.Targets...)
		}
		dlogp := make([]float32, len(rows))
		for i := range dlogp {
			dlogp[i] = -1 / float32(len(rows))
		}
		opt := &adam{m: map[string][]float64{}, v: map[string][]float64{}}
		for step, want := range s.want {
			m.ZeroGrad()
			p := forward(t, m, b)
			logp, _ := p.Score(rows, targets, 1)
			p.Backward(rows, targets, 1, dlogp, nil)
			p.Release()
			loss := 0.0
			for _, x := range logp {
				loss -= float64(x) / float64(len(rows))
			}
			if math.Abs(loss-want) > 1e-3*want {
				t.Errorf("%s: loss %v after %d steps, want %v", s.dir, loss, step, want)
			}
			opt.update(g, m.Params())
		}
	}
}

func TestGoldenInterpolation(t *testing.T) {
	g := loadGolden(t)
	for _, c := range g.Interpolation {
		m := &Model{cfg: Config{MergeSize: 2, Vision: VisionConfig{PositionSide: c.Side}}}
		n := int(c.Grid[0] * c.Grid[1] * c.Grid[2])
		row, col, taps, weights := make([]int32, n), make([]int32, n), make([]int32, 4*n), make([]float32, 4*n)
		m.placePatches(c.Grid, row, col, taps, weights)
		for i := range n {
			near(t, fmt.Sprintf("weights of patch %d of %v", i, c.Grid), weights[4*i:4*i+4], c.Weights[i][:], 1e-6)
			for k := range 4 {
				if taps[4*i+k] != c.Indices[i][k] && c.Weights[i][k] > 1e-6 {
					t.Errorf("%v patch %d: taps %v, want %v", c.Grid, i, taps[4*i:4*i+4], c.Indices[i])
				}
			}
		}
	}
	// By hand: grid 4×4 on a table of 48×48, patch (1,2).
	m := &Model{cfg: Config{MergeSize: 2, Vision: VisionConfig{PositionSide: 48}}}
	row, col, taps, weights := make([]int32, 16), make([]int32, 16), make([]int32, 64), make([]float32, 64)
	m.placePatches([3]int32{1, 4, 4}, row, col, taps, weights)
	order := ""
	for i := range row {
		order += fmt.Sprintf("(%d,%d)", row[i], col[i])
		if row[i] == 1 && col[i] == 2 {
			if fmt.Sprint(taps[4*i:4*i+4]) != "[751 752 799 800]" {
				t.Errorf("taps %v", taps[4*i:4*i+4])
			}
			near(t, "weights", weights[4*i:4*i+4], []float32{.222222, .111111, .444444, .222222}, 1e-5)
		}
	}
	if !strings.HasPrefix(order, "(0,0)(0,1)(1,0)(1,1)(0,2)(0,3)(1,2)(1,3)(2,0)") {
		t.Errorf("order of patches %s", order)
	}
}

// Two images in a text, worked out by hand.
func TestPositionsByHand(t *testing.T) {
	cfg := Config{ImagePadID: 9, MergeSize: 2, Vision: VisionConfig{Depth: 1}}
	tokens := []int32{1, 1, 1, 1, 9, 9, 9, 9, 9, 9, 1, 1, 1, 9, 9, 9, 9, 1, 1}
	pos, next, err := Positions(tokens, [][3]int32{{1, 4, 6}, {1, 4, 4}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := "[[0 1 2 3 4 4 4 4 4 4 7 8 9 10 10 10 10 12 13] [0 1 2 3 4 4 4 5 5 5 7 8 9 10 10 11 11 12 13] [0 1 2 3 4 5 6 4 5 6 7 8 9 10 11 10 11 12 13]] 14"
	if got := fmt.Sprint(pos, next); got != want {
		t.Errorf("positions %s\nwant      %s", got, want)
	}
	for _, bad := range []struct {
		tokens []int32
		grids  [][3]int32
	}{
		{tokens[:8], [][3]int32{{1, 4, 6}}},                         // cut inside an image
		{tokens, [][3]int32{{1, 4, 6}}},                             // an image without a grid
		{tokens[:12], [][3]int32{{1, 4, 6}, {1, 4, 4}}},             // a grid without an image
		{tokens[:12], [][3]int32{{1, 4, 5}}},                        // not a multiple of the merge size
		{tokens[:12], [][3]int32{{0, 4, 6}}},                        // nothing
		{tokens[:12], [][3]int32{{1 << 30, 1 << 30, 1 << 30}}},      // overflows
		{append([]int32{9}, tokens[:10]...), [][3]int32{{1, 4, 6}}}, // a stray pad
	} {
		if _, _, err := Positions(bad.tokens, bad.grids, cfg); err == nil {
			t.Errorf("no error for grids %v over %v", bad.grids, bad.tokens)
		}
	}
}

// Which position turns which frequency, for the published head dimension.
func TestInterleavedAxes(t *testing.T) {
	cfg := Config{HeadDim: 128, MRopeSection: [3]int{24, 20, 20}}
	axis := cfg.axes()
	for j, a := range axis {
		want := uint8(0)
		if j < 60 {
			want = uint8(j % 3)
		}
		if a != want {
			t.Errorf("frequency %d is turned by %d, want %d", j, a, want)
		}
	}
	// (T,H,W) = (4,5,6), theta 5e6.
	f, pos := frequencies(5e6, 128), []float32{4, 5, 6}
	for j, want := range map[int][2]float64{1: {-.7055784, -.7086318}, 2: {-.8453481, -.5342159}, 15: {.9942120, .1074360}, 16: {.9944150, .1055402}} {
		angle := float64(pos[axis[j]] * f[j])
		if math.Abs(math.Cos(angle)-want[0]) > 1e-5 || math.Abs(math.Sin(angle)-want[1]) > 1e-5 {
			t.Errorf("frequency %d: %v %v, want %v", j, math.Cos(angle), math.Sin(angle), want)
		}
	}
}

// The same of Qwen2.5-VL, whose frequencies lie in three blocks.
func TestChunkedAngles(t *testing.T) {
	cfg := Config{Family: Qwen2, HeadDim: 128, MRopeSection: [3]int{16, 24, 24}}
	axis := cfg.axes()
	f, pos := frequencies(1e6, 128), []float32{4, 5, 6}
	for j, want := range map[int][2]float64{15: {.9877059, .1563238}, 16: {.9875260, .1574559}, 40: {.9999994, .0010670}} {
		angle := float64(pos[axis[j]] * f[j])
		if math.Abs(math.Cos(angle)-want[0]) > 1e-5 || math.Abs(math.Sin(angle)-want[1]) > 1e-5 {
			t.Errorf("frequency %d: %v %v, want %v", j, math.Cos(angle), math.Sin(angle), want)
		}
	}
}
