// Package peft reads what PEFT's adapter_config.json says of a LoRA adapter
// (arXiv 2106.09685): what is added to a weight is s·B·A.
package peft

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"

	"searchloop/internal/fail"
)

// The files of an adapter, and what the names of its tensors begin with.
const (
	ConfigFile  = "adapter_config.json"
	WeightsFile = "adapter_model.safetensors"
	Prefix      = "base_model.model."
)

// LoRA is what an adapter's factors are multiplied with.
type LoRA struct {
	Rank   int     `json:"r"`
	Alpha  float64 `json:"lora_alpha"`
	RSLoRA bool    `json:"use_rslora"`
}

// Scale is s: alpha/rank, or alpha/√rank.
func (l LoRA) Scale() float32 {
	if l.RSLoRA {
		return float32(l.Alpha / math.Sqrt(float64(l.Rank)))
	}
	return float32(l.Alpha / float64(l.Rank))
}

// Read reads the configuration in a folder. Whatever would change the sum and is not
// in LoRA is refused.
func Read(op, dir string) (LoRA, error) {
	path := filepath.Join(dir, ConfigFile)
	c := struct {
		LoRA
		Type         string         `json:"peft_type"`
		DoRA         bool           `json:"use_dora"`
		Bias         string         `json:"bias"`
		LoRABias     bool           `json:"lora_bias"`
		Transposed   bool           `json:"fan_in_fan_out"`
		RankPattern  map[string]any `json:"rank_pattern"`
		AlphaPattern map[string]any `json:"alpha_pattern"`
		ToSave       []string       `json:"modules_to_save"`
	}{Bias: "none"}
	text, err := os.ReadFile(path)
	if err != nil {
		return LoRA{}, fail.WithHint(fail.Wrap(fail.BadInput, op, path, err), "a folder that PEFT or this program wrote is needed")
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return LoRA{}, fail.Wrap(fail.BadInput, op, path, err)
	}
	switch {
	case c.Type != "LORA":
		return LoRA{}, fail.New(fail.BadInput, op, path, "peft_type is %q; LORA is known", c.Type)
	case c.Rank < 1 || !(c.Alpha > 0):
		return LoRA{}, fail.New(fail.BadInput, op, path, "r is %d and lora_alpha %g", c.Rank, c.Alpha)
	case c.DoRA || c.LoRABias || c.Transposed || len(c.RankPattern) > 0 || len(c.AlphaPattern) > 0 || len(c.ToSave) > 0 || c.Bias != "none":
		return LoRA{}, fail.New(fail.BadInput, op, path, "use_dora, lora_bias, fan_in_fan_out, rank_pattern, alpha_pattern, modules_to_save and bias are not supported")
	}
	return c.LoRA, nil
}
