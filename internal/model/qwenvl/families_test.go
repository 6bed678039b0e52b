package qwenvl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var familyFolders = []string{"qwen25vl", "qwen2", "llama"}

// The order of windows, as transformers gives it, and worked out by hand for
// images that do not divide into windows.
func TestWindowOrder(t *testing.T) {
	g := loadGoldens(t, "families")
	if len(g.Windows) < 4 {
		t.Fatal("no windows")
	}
	for _, c := range g.Windows {
		m := &Model{cfg: Config{MergeSize: 2, Vision: VisionConfig{Window: c.Window / c.Patch / 2}}}
		var images []Image
		for _, grid := range c.Grids {
			images = append(images, Image{Grid: grid})
		}
		order, cu := m.windowOrder(images)
		if !slices.Equal(order, c.Index) || !slices.Equal(cu, c.Cu) {
			t.Errorf("%v: %v %v\nwant %v %v", c.Grids, order, cu, c.Index, c.Cu)
		}
	}
	m := &Model{cfg: Config{MergeSize: 2, Vision: VisionConfig{Window: 4}}}
	order, cu := m.windowOrder([]Image{{Grid: [3]int32{1, 12, 20}}})
	if fmt.Sprint(order[:21], cu) != "[0 1 2 3 10 11 12 13 20 21 22 23 30 31 32 33 4 5 6 7 14] [0 64 128 160 192 224 240]" {
		t.Errorf("%v %v", order, cu)
	}
	if _, cu = m.windowOrder([]Image{{Grid: [3]int32{1, 16, 16}}}); fmt.Sprint(cu) != "[0 64 128 192 256]" {
		t.Errorf("%v", cu)
	}
}

// Which position turns which frequency in Qwen2.5-VL, for the published sizes.
func TestChunkedAxes(t *testing.T) {
	cfg := Config{Family: Qwen2, HeadDim: 128, MRopeSection: [3]int{16, 24, 24}}
	axis := cfg.axes()
	for j, a := range axis {
		want := uint8(0)
		if j >= 40 {
			want = 2
		} else if j >= 16 {
			want = 1
		}
		if a != want {
			t.Errorf("frequency %d is turned by %d, want %d", j, a, want)
		}
	}
}

// Token by token the cache gives the bits of the whole pass.
func TestFamiliesExtendAsForward(t *testing.T) {
	for _, c := range append(loadGoldens(t, "families").Cases, loadGoldens(t, "moe").Cases...) {
		m := mustLoad(t, c.folder())
		b, _ := pack(t, m.Config(), c)
		p := forward(t, m, b)
		want := allLogits(p)
		p.Release()
		cache := m.NewCache(len(c.Tokens))
		first := len(c.Tokens) - 3 // images lie within the first step
		at := 0
		for at < len(c.Tokens) {
			n := 1
			if at == 0 {
				n = first
			}
			s := Step{Cache: cache, Tokens: c.Tokens[at : at+n]}
			for a := range s.Positions {
				s.Positions[a] = b.Positions[a][at : at+n]
			}
			if at == 0 {
				s.Images = b.Images
			}
			logits, err := m.Extend([]Step{s})
			if err != nil {
				t.Fatal(err)
			}
			at += n
			v := m.Config().Vocab
			if !slices.Equal(logits[0], want[(at-1)*v:at*v]) {
				t.Fatalf("%s: token %d differs", c.Name, at-1)
			}
		}
		cache.Release()
	}
}

// A pack gives each sequence what it gets alone, to the bit.
func TestFamiliesPackAsAlone(t *testing.T) {
	g := loadGoldens(t, "families")
	var cases []goldenCase
	for _, c := range g.Cases {
		if c.folder() == "testdata/qwen25vl" {
			cases = append(cases, c)
		}
	}
	m := mustLoad(t, "testdata/qwen25vl")
	b, base := pack(t, m.Config(), cases...)
	p := forward(t, m, b)
	all := allLogits(p)
	p.Release()
	for i := range cases {
		one, _ := pack(t, m.Config(), cases[i])
		p := forward(t, m, one)
		v := m.Config().Vocab
		if !slices.Equal(allLogits(p), all[int(base[i])*v:(int(base[i])+len(cases[i].Tokens))*v]) {
			t.Errorf("%s differs in company", cases[i].Name)
		}
		p.Release()
	}
}

// What is loaded is saved: names, shapes, bytes; also under the long names.
func TestFamiliesSave(t *testing.T) {
	for _, name := range familyFolders {
		m, out := mustLoad(t, "testdata/"+name), t.TempDir()
		if err := m.Save(out); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"config.json", "model.safetensors"} {
			a, _ := os.ReadFile(filepath.Join("testdata", name, f))
			b, err := os.ReadFile(filepath.Join(out, f))
			if err != nil || f == "config.json" && !bytes.Equal(a, b) {
				t.Errorf("%s/%s: %v", name, f, err)
			}
		}
		again := mustLoad(t, out)
		for i, p := range m.Params() {
			if q := again.Params()[i]; p.Name != q.Name || !slices.Equal(p.W.Host(), q.W.Host()) {
				t.Errorf("%s: %s differs", name, p.Name)
			}
		}
	}
	m := mustLoad(t, "testdata/qwen25vl")
	for _, p := range m.params {
		p.Name = longName(m, p.Name)
	}
	out := t.TempDir()
	if err := m.Save(out); err != nil {
		t.Fatal(err)
	}
	long := mustLoad(t, out)
	if long.cfg.ShortNames {
		t.Error("long names were not noticed")
	}
	for i, p := range long.params {
		if p.Name != m.params[i].Name || !slices.Equal(p.W.Host(), m.params[i].W.Host()) {
			t.Errorf("%s differs", p.Name)
		}
	}
}

// A model made here loads as what it is.
func TestFamiliesInit(t *testing.T) {
	for _, name := range familyFolders {
		cfg := mustLoad(t, "testdata/"+name).Config()
		out := t.TempDir()
		if err := Init(cfg, 3).Save(out); err != nil {
			t.Fatal(err)
		}
		got := mustLoad(t, out).Config()
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", cfg) {
			t.Errorf("%+v\nwant %+v", got, cfg)
		}
	}
}

// The released form of Qwen2.5-VL's configuration, with everything at the top
// level, means the same as the nested one.
func TestFlatConfig(t *testing.T) {
	raw, err := os.ReadFile("testdata/qwen25vl/config.json")
	if err != nil {
		t.Fatal(err)
	}
	nested, err := ParseConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	for k, v := range tree["text_config"].(map[string]any) {
		if _, ok := tree[k]; !ok {
			tree[k] = v
		}
	}
	delete(tree, "text_config")
	rope := tree["rope_parameters"].(map[string]any)
	delete(tree, "rope_parameters")
	tree["rope_theta"] = rope["rope_theta"]
	tree["rope_scaling"] = map[string]any{"type": "mrope", "mrope_section": rope["mrope_section"]}
	vision := tree["vision_config"].(map[string]any)
	vision["in_chans"] = vision["in_channels"]
	delete(vision, "in_channels")
	flat, _ := json.Marshal(tree)
	got, err := ParseConfig(flat)
	if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", nested) {
		t.Errorf("%+v, %v\nwant %+v", got, err, nested)
	}
	if nested.Vision.Window != 2 || nested.HeadDim != 16 || nested.Family != Qwen2 {
		t.Errorf("%+v", nested)
	}
	for _, c := range [][2]string{
		{`"window_size": 16`, `"window_size": 15`}, {`"window_size": 16`, `"window_size": 0`}, {`"fullatt_block_indexes": [
      1`, `"fullatt_block_indexes": [
      7`}, {`"hidden_act": "silu",
    "hidden_size": 16`, `"hidden_act": "gelu",
    "hidden_size": 16`}, {`"qwen2_5_vl"`, `"qwen2_5_omni"`},
	} {
		text := strings.Replace(string(raw), c[0], c[1], 1)
		if text == string(raw) {
			t.Fatalf("%s is not in the file", c[0])
		}
		if _, err := ParseConfig([]byte(text)); err == nil {
			t.Errorf("%s: no error", c[1])
		}
	}
}
