package qwenvl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"searchloop/internal/fail"
)

// Family is the kind of decoder layer.
type Family string

// Families. The zero value is Qwen3.
const (
	Qwen3 Family = ""      // norms on queries and keys, no biases
	Qwen2 Family = "qwen2" // biases on queries, keys and values, no norms: Qwen2.5, Qwen2.5-VL
	Llama Family = "llama" // neither: Llama, SmolLM2
)

// Config is what config.json says about the model. Fields that decide a shape
// have no defaults: a file without them is refused.
type Config struct {
	Family                              Family
	Vocab, Hidden, Intermediate, Layers int
	Heads, KVHeads, HeadDim             int
	MaxPositions                        int // a statement of the model's makers, not enforced
	RMSEps                              float32
	RopeTheta                           float64
	// MRopeSection is the number of frequencies turned by time, height and width;
	// the sum is HeadDim/2. All zero means plain text positions.
	MRopeSection [3]int
	Tied         bool    // the output head is the embedding table
	ShortNames   bool    // a vision model's weights are model.* and visual.*, not model.language_model.* and model.visual.*
	DType        string  // of the weights that Init'ed models are saved with: F32 (default) or BF16
	InitStd      float64 // standard deviation of Init; default 0.02

	// Sparse layers (Qwen3-MoE, Qwen3-VL-MoE) have Experts MLPs of width
	// ExpertWidth instead of one, and every token takes TopExperts of them. All
	// layers but those of DenseLayers and those that SparseStep passes over are
	// sparse. Experts 0 means that there are none.
	Experts, TopExperts, ExpertWidth int
	SparseStep                       int
	DenseLayers                      []int
	ExpertLayout                     ExpertLayout

	// The special tokens of images. Without a vision tower they are -1.
	ImagePadID, VideoPadID, VisionStartID, VisionEndID int32

	// The geometry of images; zero without a vision tower.
	PatchSize, MergeSize, TemporalPatch int
	Vision                              VisionConfig

	patchWidth int // numbers of a patch with the zeros that fill it up, in an encoder; 0: PatchDim
}

// ExpertLayout is how a checkpoint stores the experts of a layer.
type ExpertLayout int

const (
	ExpertsStacked    ExpertLayout = iota // gate_up_proj [experts, 2·width, hidden], down_proj [experts, hidden, width]
	ExpertsTransposed                     // gate_up_proj [experts, hidden, 2·width], down_proj [experts, width, hidden]: Qwen3-VL-MoE as published
	ExpertsSeparate                       // gate_proj, up_proj and down_proj of every expert: Qwen3-MoE
)

// Sparse says whether a layer has experts.
func (c Config) Sparse(layer int) bool {
	return c.Experts > 0 && !slices.Contains(c.DenseLayers, layer) && (layer+1)%c.SparseStep == 0
}

// VisionConfig is the vision tower; Depth 0 means there is none.
type VisionConfig struct {
	Depth, Hidden, Intermediate, Heads, Channels int
	Out                                          int   // width of what it hands to the decoder, the decoder's Hidden
	PositionSide                                 int   // the learned position table is PositionSide × PositionSide; 0 in Qwen2.5-VL, which has none
	Deepstack                                    []int // block i's output is merged and added after decoder layer j, i = Deepstack[j]
	RopeTheta                                    float64

	// Of Qwen2.5-VL, where Window is set: blocks attend within windows of
	// Window × Window tokens, but those of Full over the whole frame.
	Window int
	Full   []int
}

// windowed tells Qwen2.5-VL's tower (RMSNorm, SwiGLU, windows) from Qwen3-VL's
// (LayerNorm, GELU, learned positions).
func (v *VisionConfig) windowed() bool { return v.Window > 0 }

// HasVision says whether the model reads images.
func (c Config) HasVision() bool { return c.Vision.Depth > 0 }

// PatchDim is the number of values of one patch.
func (c Config) PatchDim() int {
	return c.Vision.Channels * c.TemporalPatch * c.PatchSize * c.PatchSize
}

// patchIn is the width of the patches that the tower reads.
func (c *Config) patchIn() int {
	if c.patchWidth > 0 {
		return c.patchWidth
	}
	return c.PatchDim()
}

// mergeUnit is the number of patches that become one token.
func (c Config) mergeUnit() int { return c.MergeSize * c.MergeSize }

type rawConfig struct {
	Architectures []string        `json:"architectures"`
	ModelType     string          `json:"model_type"`
	Text          json.RawMessage `json:"text_config"`
	Vision        *rawVision      `json:"vision_config"`
	Tied          *bool           `json:"tie_word_embeddings"`
	DType         string          `json:"dtype"`
	TorchDType    string          `json:"torch_dtype"`
	ImagePad      *int32          `json:"image_token_id"`
	VideoPad      *int32          `json:"video_token_id"`
	VisionStart   *int32          `json:"vision_start_token_id"`
	VisionEnd     *int32          `json:"vision_end_token_id"`
}

type rawText struct {
	Vocab        int      `json:"vocab_size"`
	Hidden       int      `json:"hidden_size"`
	Intermediate int      `json:"intermediate_size"`
	Layers       int      `json:"num_hidden_layers"`
	Heads        int      `json:"num_attention_heads"`
	KVHeads      int      `json:"num_key_value_heads"`
	HeadDim      int      `json:"head_dim"`
	MaxPositions int      `json:"max_position_embeddings"`
	Act          string   `json:"hidden_act"`
	Eps          float32  `json:"rms_norm_eps"`
	Bias         bool     `json:"attention_bias"`
	MLPBias      bool     `json:"mlp_bias"`
	Sliding      bool     `json:"use_sliding_window"`
	InitStd      float64  `json:"initializer_range"`
	Tied         *bool    `json:"tie_word_embeddings"`
	Theta        float64  `json:"rope_theta"`
	Scaling      *rawRope `json:"rope_scaling"`
	Parameters   *rawRope `json:"rope_parameters"`

	Experts     int   `json:"num_experts"`
	Experts5    int   `json:"num_local_experts"` // as transformers 5 writes it
	TopExperts  int   `json:"num_experts_per_tok"`
	ExpertWidth int   `json:"moe_intermediate_size"`
	SparseStep  *int  `json:"decoder_sparse_step"`
	DenseLayers []int `json:"mlp_only_layers"`
	NormTopK    *bool `json:"norm_topk_prob"`
}

// rawRope is rope_scaling (transformers 4, with rope_theta beside it) or
// rope_parameters (transformers 5, with rope_theta inside).
type rawRope struct {
	Type        string  `json:"rope_type"`
	OldType     string  `json:"type"`
	Theta       float64 `json:"rope_theta"`
	Section     []int   `json:"mrope_section"`
	Interleaved *bool   `json:"mrope_interleaved"`
}

type rawVision struct {
	Depth         int      `json:"depth"`
	Hidden        int      `json:"hidden_size"`
	Intermediate  int      `json:"intermediate_size"`
	Heads         int      `json:"num_heads"`
	Channels      int      `json:"in_channels"`
	OldChannels   int      `json:"in_chans"`
	Window        int      `json:"window_size"` // pixels
	Full          []int    `json:"fullatt_block_indexes"`
	Act           string   `json:"hidden_act"`
	Patch         int      `json:"patch_size"`
	Merge         int      `json:"spatial_merge_size"`
	TemporalPatch int      `json:"temporal_patch_size"`
	Out           int      `json:"out_hidden_size"`
	Positions     int      `json:"num_position_embeddings"`
	Deepstack     []int    `json:"deepstack_visual_indexes"`
	Rope          *rawRope `json:"rope_parameters"`
}

// LoadConfig reads dir/config.json.
func LoadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fail.Wrap(fail.BadInput, "read model configuration", path, err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return Config{}, fail.Wrap(fail.BadInput, "read model configuration", path, err)
	}
	return c, nil
}

// ParseConfig reads a config.json. The rotary settings are accepted in the three
// ways they are found: text fields at the top level with rope_theta, a nested
// text_config with rope_theta and rope_scaling, and rope_parameters.
func ParseConfig(data []byte) (Config, error) {
	bad := func(format string, args ...any) (Config, error) {
		return Config{}, fail.New(fail.BadInput, "", "", format, args...)
	}
	var raw rawConfig
	if err := json.Unmarshal(data, &raw); err != nil {
		return bad("not a model configuration: %v", err)
	}
	switch raw.ModelType {
	case "qwen3_vl", "qwen3", "qwen3_vl_moe", "qwen3_moe", "qwen2_5_vl", "qwen2", "llama":
	default:
		return bad("model_type %q is not supported (qwen3_vl, qwen3, qwen3_vl_moe, qwen3_moe, qwen2_5_vl, qwen2 and llama are)", raw.ModelType)
	}
	text := data
	if raw.Text != nil {
		text = raw.Text
	}
	t := rawText{Eps: 1e-6, InitStd: 0.02, Act: "silu"}
	if err := json.Unmarshal(text, &t); err != nil {
		return bad("text_config: %v", err)
	}
	c := Config{
		Vocab: t.Vocab, Hidden: t.Hidden, Intermediate: t.Intermediate, Layers: t.Layers,
		Heads: t.Heads, KVHeads: t.KVHeads, HeadDim: t.HeadDim, MaxPositions: t.MaxPositions,
		RMSEps: t.Eps, InitStd: t.InitStd, RopeTheta: t.Theta,
		ImagePadID: -1, VideoPadID: -1, VisionStartID: -1, VisionEndID: -1,
	}
	switch raw.ModelType {
	case "qwen2_5_vl", "qwen2":
		c.Family = Qwen2
	case "llama":
		c.Family = Llama
	}
	if raw.ModelType == "qwen3_vl_moe" || raw.ModelType == "qwen3_moe" {
		if err := c.readExperts(&t, raw.ModelType); err != nil {
			return Config{}, err
		}
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Family != Qwen3 && c.Heads > 0 && c.Hidden%c.Heads == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	for _, tied := range []*bool{t.Tied, raw.Tied} { // the outer one decides
		if tied != nil {
			c.Tied = *tied
		}
	}
	if t.Act != "silu" {
		return bad("hidden_act %q is not supported", t.Act)
	}
	if t.Bias || t.Sliding || t.MLPBias {
		return bad("attention_bias, mlp_bias and use_sliding_window are not supported")
	}
	rope := t.Parameters
	if rope == nil {
		rope = t.Scaling
	}
	if rope != nil {
		if rope.Theta > 0 {
			c.RopeTheta = rope.Theta
		}
		for _, typ := range []string{rope.Type, rope.OldType} {
			if typ != "" && typ != "default" && typ != "mrope" {
				return bad("rope_type %q is not supported", typ)
			}
		}
		if rope.Interleaved != nil && *rope.Interleaved != (c.Family == Qwen3) {
			return bad("mrope_interleaved %v is not supported for %s", *rope.Interleaved, raw.ModelType)
		}
		if len(rope.Section) == 3 {
			c.MRopeSection = [3]int(rope.Section)
		} else if len(rope.Section) != 0 {
			return bad("mrope_section has %d numbers instead of 3", len(rope.Section))
		}
	}
	switch dtype := raw.DType + raw.TorchDType; dtype {
	case "bfloat16", "bfloat16bfloat16", "float16":
		c.DType = "BF16"
	default:
		c.DType = "F32"
	}
	if raw.ModelType == "qwen3_vl" || raw.ModelType == "qwen3_vl_moe" || raw.ModelType == "qwen2_5_vl" {
		if err := c.readVision(&raw); err != nil {
			return Config{}, err
		}
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) readExperts(t *rawText, model string) error {
	c.Experts, c.TopExperts, c.ExpertWidth, c.SparseStep, c.DenseLayers = max(t.Experts, t.Experts5), t.TopExperts, t.ExpertWidth, 1, t.DenseLayers
	if t.SparseStep != nil {
		c.SparseStep = *t.SparseStep
	}
	if model == "qwen3_moe" {
		c.ExpertLayout = ExpertsSeparate
		if t.NormTopK == nil || !*t.NormTopK { // its default is false
			return fail.New(fail.BadInput, "", "", "norm_topk_prob false is not supported")
		}
	}
	switch {
	case c.Experts < 1 || c.Experts > maxDim:
		return fail.New(fail.BadInput, "", "", "num_experts is missing or out of range: %d", c.Experts)
	case c.TopExperts < 1 || c.TopExperts > c.Experts:
		return fail.New(fail.BadInput, "", "", "num_experts_per_tok %d is not between 1 and %d experts", c.TopExperts, c.Experts)
	case c.ExpertWidth < 1 || c.ExpertWidth > maxDim:
		return fail.New(fail.BadInput, "", "", "moe_intermediate_size is missing or out of range: %d", c.ExpertWidth)
	case c.SparseStep < 1:
		return fail.New(fail.BadInput, "", "", "decoder_sparse_step is out of range: %d", c.SparseStep)
	}
	return nil
}

func (c *Config) readVision(raw *rawConfig) error {
	v := raw.Vision
	if v == nil {
		return fail.New(fail.BadInput, "", "", "vision_config is missing")
	}
	act := "gelu_pytorch_tanh"
	if c.Family == Qwen2 {
		act = "silu"
	}
	if v.Act != "" && v.Act != act {
		return fail.New(fail.BadInput, "", "", "vision hidden_act %q is not supported", v.Act)
	}
	for _, id := range []struct {
		name string
		from *int32
		to   *int32
	}{
		{"image_token_id", raw.ImagePad, &c.ImagePadID}, {"video_token_id", raw.VideoPad, &c.VideoPadID},
		{"vision_start_token_id", raw.VisionStart, &c.VisionStartID}, {"vision_end_token_id", raw.VisionEnd, &c.VisionEndID},
	} {
		if id.from == nil {
			return fail.New(fail.BadInput, "", "", "%s is missing", id.name)
		}
		*id.to = *id.from
	}
	c.PatchSize, c.MergeSize, c.TemporalPatch = v.Patch, v.Merge, v.TemporalPatch
	if c.Family == Qwen2 {
		return c.readWindows(v)
	}
	side := 0
	for side*side < v.Positions {
		side++
	}
	if side*side != v.Positions {
		return fail.New(fail.BadInput, "", "", "num_position_embeddings %d is not a square", v.Positions)
	}
	c.Vision = VisionConfig{
		Depth: v.Depth, Hidden: v.Hidden, Intermediate: v.Intermediate, Heads: v.Heads, Channels: v.Channels,
		Out: v.Out, PositionSide: side, Deepstack: v.Deepstack, RopeTheta: 10000,
	}
	if c.Vision.Channels == 0 {
		c.Vision.Channels = 3
	}
	if v.Rope != nil && v.Rope.Theta > 0 {
		c.Vision.RopeTheta = v.Rope.Theta
	}
	return nil
}

// readWindows is the rest of readVision for Qwen2.5-VL.
func (c *Config) readWindows(v *rawVision) error {
	token := v.Patch * v.Merge // pixels of a token's side
	if token < 1 || v.Window < token || v.Window/token*token != v.Window {
		return fail.New(fail.BadInput, "", "", "window_size %d is not a positive multiple of patch_size %d times spatial_merge_size %d", v.Window, v.Patch, v.Merge)
	}
	c.Vision = VisionConfig{
		Depth: v.Depth, Hidden: v.Hidden, Intermediate: v.Intermediate, Heads: v.Heads, Channels: max(v.Channels, v.OldChannels),
		Out: v.Out, RopeTheta: 10000, Window: v.Window / token, Full: v.Full,
	}
	if c.Vision.Channels == 0 {
		c.Vision.Channels = 3
	}
	if v.Rope != nil && v.Rope.Theta > 0 {
		c.Vision.RopeTheta = v.Rope.Theta
	}
	return nil
}

const maxDim = 1 << 20 // no shape of these models comes near; keeps products from overflowing

// check refuses shapes that cannot be a model.
func (c *Config) check() error {
	bad := func(format string, args ...any) error { return fail.New(fail.BadInput, "", "", format, args...) }
	sizes := []struct {
		name string
		n    int
	}{
		{"vocab_size", c.Vocab}, {"hidden_size", c.Hidden}, {"intermediate_size", c.Intermediate},
		{"num_hidden_layers", c.Layers}, {"num_attention_heads", c.Heads}, {"num_key_value_heads", c.KVHeads},
		{"head_dim", c.HeadDim},
	}
	if c.HasVision() {
		v := &c.Vision
		sizes = append(sizes, []struct {
			name string
			n    int
		}{
			{"vision hidden_size", v.Hidden}, {"vision intermediate_size", v.Intermediate}, {"num_heads", v.Heads},
			{"in_channels", v.Channels}, {"patch_size", c.PatchSize}, {"spatial_merge_size", c.MergeSize},
			{"temporal_patch_size", c.TemporalPatch}, {"depth", v.Depth},
		}...)
		if !v.windowed() {
			sizes = append(sizes, struct {
				name string
				n    int
			}{"num_position_embeddings", v.PositionSide})
		}
	}
	for _, s := range sizes {
		if s.n < 1 || s.n > maxDim {
			return bad("%s is missing or out of range: %d", s.name, s.n)
		}
	}
	switch {
	case c.Heads%c.KVHeads != 0:
		return bad("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.Heads, c.KVHeads)
	case c.HeadDim%2 != 0:
		return bad("head_dim %d is odd", c.HeadDim)
	case !(c.RopeTheta > 1):
		return bad("rope_theta is missing or out of range: %g", c.RopeTheta)
	case !(c.RMSEps > 0):
		return bad("rms_norm_eps is out of range: %g", c.RMSEps)
	}
	if s := c.MRopeSection; s != [3]int{} && (s[0]+s[1]+s[2] != c.HeadDim/2 || min(s[0], s[1], s[2]) < 0) {
		return bad("mrope_section %v does not sum to head_dim/2 = %d", s, c.HeadDim/2)
	}
	if !c.HasVision() {
		return nil
	}
	v := &c.Vision
	switch {
	case c.MRopeSection == [3]int{}:
		return bad("mrope_section is missing")
	case v.Out != c.Hidden:
		return bad("vision out_hidden_size %d differs from hidden_size %d", v.Out, c.Hidden)
	case v.Hidden%v.Heads != 0 || v.Hidden/v.Heads%4 != 0:
		return bad("vision hidden_size %d does not divide into %d heads of a multiple of 4", v.Hidden, v.Heads)
	case len(v.Deepstack) > c.Layers:
		return bad("%d deepstack indexes for %d layers", len(v.Deepstack), c.Layers)
	case min(c.ImagePadID, c.VideoPadID, c.VisionStartID, c.VisionEndID) < 0 || int(c.ImagePadID) >= c.Vocab:
		return bad("a special token of images is outside of the vocabulary")
	}
	if v.windowed() != (c.Family == Qwen2) || c.Family == Llama {
		return bad("the vision tower is not that of the decoder's family")
	}
	for i, d := range v.Full {
		if d < 0 || d >= v.Depth || (i > 0 && d <= v.Full[i-1]) {
			return bad("fullatt_block_indexes %v are not ascending within depth %d", v.Full, v.Depth)
		}
	}
	for i, d := range v.Deepstack {
		if d < 0 || d >= v.Depth || (i > 0 && d <= v.Deepstack[i-1]) {
			return bad("deepstack_visual_indexes %v are not ascending within depth %d", v.Deepstack, v.Depth)
		}
	}
	return nil
}
