package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// asJSON is a template as a configuration holds it.
func asJSON(t *testing.T, template any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"chat_template": template, "eos_token": "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFormatOf(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	vl, text := read("testdata/qwen25vl.jinja"), read("testdata/qwen25.jinja")
	// Line breaks as themselves, outside of strings.
	bare := "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}"
	for name, c := range map[string]struct {
		files map[string]string
		want  Format
	}{
		"none":             {nil, Qwen3VL},
		"no template":      {map[string]string{"tokenizer_config.json": `{"eos_token": "x"}`}, Qwen3VL},
		"ours":             {map[string]string{"chat_template.jinja": Template}, Qwen3VL},
		"jinja":            {map[string]string{"chat_template.jinja": vl, "tokenizer_config.json": asJSON(t, Template)}, Qwen25VL},
		"json":             {map[string]string{"chat_template.json": asJSON(t, vl), "tokenizer_config.json": asJSON(t, text)}, Qwen25VL},
		"tokenizer config": {map[string]string{"tokenizer_config.json": asJSON(t, text)}, Qwen25},
		"named":            {map[string]string{"tokenizer_config.json": asJSON(t, []map[string]string{{"name": "x", "template": vl}, {"name": "default", "template": text}})}, Qwen25},
		"bare":             {map[string]string{"chat_template.jinja": bare}, Qwen25VL},
	} {
		if got, err := FormatOf(folder(t, c.files)); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, files := range map[string]map[string]string{
		"other turns": {"chat_template.jinja": "[INST] {{ messages[0].content }} [/INST]"},
		"no JSON":     {"tokenizer_config.json": "{"},
		"no default":  {"tokenizer_config.json": asJSON(t, []map[string]string{{"name": "x", "template": vl}})},
		"a number":    {"chat_template.json": asJSON(t, 3)},
	} {
		if _, err := FormatOf(folder(t, files)); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "chat template") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Schemas that the model would never see are no small matter.
func TestToolsNeedATemplateWithTools(t *testing.T) {
	_, err := Qwen25VL.Render(tokenizer(t), []Message{{Role: User, Text: "q"}}, json.RawMessage(`[{"name": "x"}]`), true)
	if fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "system message") {
		t.Error(err)
	}
}
