package eva

import (
	"encoding/json"
	"os"
	"path/filepath"

	"searchloop/internal/fail"
)

const op = "load vision tower"

// config is vision_config of a jina_clip folder's config.json.
type config struct {
	Dim       int      `json:"embed_dim"`
	Width     int      `json:"width"`
	Image     int      `json:"image_size"`
	Patch     int      `json:"patch_size"`
	Layers    int      `json:"layers"`
	HeadWidth int      `json:"head_width"`
	Ratio     float64  `json:"mlp_ratio"`
	Scale     *float64 `json:"ls_init_value"`
	QKVBias   bool     `json:"qkv_bias"`
	PostNorm  bool     `json:"post_norm"`
	Rope      bool     `json:"rope_embeddings"`
	RopeSide  int      `json:"pt_hw_seq_len"` // of the grid whose positions the model began with
	Stretch   bool     `json:"intp_freq"`
	SwiGLU    bool     `json:"naive_swiglu"`
	SubNorm   bool     `json:"subln"`
	Proj      *string  `json:"proj_type"`
}

// side is the number of patches along an edge: what is left over is not seen.
func (c *config) side() int { return c.Image / c.Patch }

// tokens is the number of rows an image takes: [CLS] and its patches.
func (c *config) tokens() int { return 1 + c.side()*c.side() }

// hidden is the width inside the perceptron.
func (c *config) hidden() int { return int(float64(c.Width) * c.Ratio) }

func readConfig(dir string) (config, error) {
	path := filepath.Join(dir, "config.json")
	bad := func(format string, args ...any) (config, error) {
		return config{}, fail.New(fail.BadInput, op, path, format, args...)
	}
	var f struct {
		ModelType   string `json:"model_type"`
		Projections bool   `json:"add_projections"`
		Vision      config `json:"vision_config"`
	}
	// What the published implementation takes for keys that are not there.
	f.Vision = config{Dim: 768, Width: 768, Image: 224, Patch: 16, Layers: 12, HeadWidth: 64, Ratio: 4, QKVBias: true, RopeSide: 16}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return config{}, fail.Wrap(fail.BadInput, op, path, err)
	}
	c := f.Vision
	if f.ModelType != "jina_clip" {
		return bad("model_type is %q; jina_clip is known", f.ModelType)
	}
	const most = 1 << 16
	for _, v := range []struct {
		name  string
		value int
	}{{"width", c.Width}, {"image_size", c.Image}, {"patch_size", c.Patch}, {"layers", c.Layers}, {"head_width", c.HeadWidth}, {"pt_hw_seq_len", c.RopeSide}} {
		if v.value < 1 || v.value > most {
			return bad("%s is %d", v.name, v.value)
		}
	}
	switch {
	case c.Patch > c.Image || c.side() > 1<<8:
		return bad("patches of %d in images of %d", c.Patch, c.Image)
	case c.Width%c.HeadWidth != 0 || c.HeadWidth%4 != 0:
		return bad("head_width %d does not fit width %d in four parts", c.HeadWidth, c.Width)
	case !(c.Ratio > 0) || c.hidden() < 1 || c.hidden() > 1<<20:
		return bad("mlp_ratio is %g", c.Ratio)
	case !c.QKVBias || !c.Rope || !c.SwiGLU || !c.SubNorm || c.PostNorm || c.Scale != nil && *c.Scale != 0:
		return bad("not an EVA02 tower: qkv_bias, rope_embeddings, naive_swiglu and subln must be set, post_norm and ls_init_value not")
	case !c.Stretch && c.side() != c.RopeSide:
		return bad("%d patches an edge, but positions for %d that are not stretched (intp_freq)", c.side(), c.RopeSide)
	case f.Projections || c.Proj != nil || c.Dim != c.Width:
		return bad("a tower that is projected (from %d to %d) is not known", c.Width, c.Dim)
	}
	return c, nil
}
