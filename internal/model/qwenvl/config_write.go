package qwenvl

import (
	"encoding/json"
	"path/filepath"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// WriteConfig writes cfg as dir/config.json in the form that transformers 5
// reads (and 4.57: both spellings of the rotary settings are there).
func WriteConfig(dir string, cfg Config) error {
	path := filepath.Join(dir, "config.json")
	return fail.Wrap(fail.Disk, "write model configuration", path, atomicfile.WriteFile(path, hubConfig(cfg)))
}

func hubConfig(c Config) []byte {
	dtype := "float32"
	if c.DType == "BF16" {
		dtype = "bfloat16"
	}
	rope := map[string]any{"rope_type": "default", "rope_theta": c.RopeTheta}
	text := map[string]any{
		"vocab_size": c.Vocab, "hidden_size": c.Hidden, "intermediate_size": c.Intermediate,
		"num_hidden_layers": c.Layers, "num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads,
		"head_dim": c.HeadDim, "max_position_embeddings": c.MaxPositions, "hidden_act": "silu",
		"rms_norm_eps": c.RMSEps, "attention_bias": false, "attention_dropout": 0.0,
		"initializer_range": c.InitStd, "use_cache": true, "dtype": dtype,
		"rope_theta": c.RopeTheta, "rope_parameters": rope,
	}
	names := map[Family][2]string{Qwen3: {"qwen3", "Qwen3ForCausalLM"}, Qwen2: {"qwen2", "Qwen2ForCausalLM"}, Llama: {"llama", "LlamaForCausalLM"}}[c.Family]
	if c.Family == Qwen2 {
		delete(text, "attention_bias")
	}
	if c.Experts > 0 {
		dense := c.DenseLayers
		if dense == nil {
			dense = []int{}
		}
		text["num_experts"], text["num_experts_per_tok"], text["moe_intermediate_size"] = c.Experts, c.TopExperts, c.ExpertWidth
		text["decoder_sparse_step"], text["mlp_only_layers"], text["norm_topk_prob"] = c.SparseStep, dense, true
		names = [2]string{"qwen3_moe", "Qwen3MoeForCausalLM"}
	}
	var out map[string]any
	if !c.HasVision() {
		text["model_type"] = names[0]
		text["architectures"] = []string{names[1]}
		text["tie_word_embeddings"] = c.Tied
		text["use_sliding_window"] = false
		out = text
	} else {
		v := c.Vision
		section := map[string]any{"rope_type": "default", "mrope_interleaved": true, "mrope_section": c.MRopeSection}
		rope["mrope_interleaved"], rope["mrope_section"] = true, c.MRopeSection
		if c.Family == Qwen2 {
			delete(section, "mrope_interleaved")
			delete(rope, "mrope_interleaved")
		}
		text["model_type"] = "qwen3_vl_text"
		text["rope_scaling"] = section
		deepstack := v.Deepstack
		if deepstack == nil {
			deepstack = []int{}
		}
		out = map[string]any{
			"model_type": "qwen3_vl", "architectures": []string{"Qwen3VLForConditionalGeneration"},
			"dtype": dtype, "tie_word_embeddings": c.Tied,
			"image_token_id": c.ImagePadID, "video_token_id": c.VideoPadID,
			"vision_start_token_id": c.VisionStartID, "vision_end_token_id": c.VisionEndID,
			"text_config": text,
			"vision_config": map[string]any{
				"model_type": "qwen3_vl_vision", "dtype": dtype,
				"depth": v.Depth, "hidden_size": v.Hidden, "intermediate_size": v.Intermediate, "num_heads": v.Heads,
				"in_channels": v.Channels, "hidden_act": "gelu_pytorch_tanh", "patch_size": c.PatchSize,
				"spatial_merge_size": c.MergeSize, "temporal_patch_size": c.TemporalPatch, "out_hidden_size": v.Out,
				"num_position_embeddings":  v.PositionSide * v.PositionSide,
				"deepstack_visual_indexes": deepstack, "initializer_range": c.InitStd,
			},
		}
	}
	if c.Experts > 0 && c.HasVision() {
		text["model_type"] = "qwen3_vl_moe_text"
		out["model_type"], out["architectures"] = "qwen3_vl_moe", []string{"Qwen3VLMoeForConditionalGeneration"}
		out["vision_config"].(map[string]any)["model_type"] = "qwen3_vl_moe_vision"
	}
	if v := c.Vision; v.windowed() {
		text["model_type"] = "qwen2_5_vl_text"
		out["model_type"], out["architectures"] = "qwen2_5_vl", []string{"Qwen2_5_VLForConditionalGeneration"}
		tower := out["vision_config"].(map[string]any)
		delete(tower, "num_position_embeddings")
		delete(tower, "deepstack_visual_indexes")
		tower["model_type"], tower["hidden_act"] = "qwen2_5_vl_vision", "silu"
		tower["window_size"], tower["fullatt_block_indexes"] = v.Window*c.PatchSize*c.MergeSize, v.Full
	}
	data, err := json.MarshalIndent(out, "", "  ") // maps are written in the order of their keys
	if err != nil {
		panic(err) // numbers, strings and bools only
	}
	return append(data, '\n')
}
