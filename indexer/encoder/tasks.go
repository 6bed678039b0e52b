package encoder

import (
	"path/filepath"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/model/bert"
	"searchloop/internal/model/jinav4"
)

// tasks is what config.json of Jina's models says about their use: which low-rank
// adapter and which instruction belong to a task, and to which lengths vectors
// may be cut. Other models' files say none of it.
type tasks struct {
	ModelType    string            `json:"model_type"`
	Adapters     []string          `json:"lora_adaptations"`
	Instructions map[string]string `json:"task_instructions"`
	Dims         []int             `json:"matryoshka_dimensions"`
	Cut          int               `json:"truncate_dim"`
	Classes      []string          `json:"architectures"`
	Dims4        []int             `json:"matryoshka_dims"` // of jina-embeddings-v4
	Text         struct {
		Adapter     string `json:"default_lora_task"`
		Instruction string `json:"default_instruction_task"`
		Change      struct {
			Instructions map[string]string `json:"task_instructions"`
		} `json:"hf_model_config_kwargs"`
	} `json:"text_config"` // of a jina_clip folder
}

// clipTokens is the length limit of Jina-CLIP's own encode_text; the model itself
// takes 8192.
const clipTokens = 512

func readTasks(dir string) (tasks, error) {
	var t tasks
	path := filepath.Join(dir, "config.json")
	if _, err := readJSON(path, &t, false); err != nil {
		return t, err
	}
	if t.v4() {
		t.Dims = t.Dims4
	}
	if t.ModelType == "jina_embeddings_v3" && len(t.Adapters) == 0 {
		// transformers' layout: an adapter is a folder, and config.json lists none.
		for _, task := range []string{"retrieval.query", "retrieval.passage"} {
			if bert.HasAdapterFolder(dir, task) {
				t.Adapters = append(t.Adapters, task)
			}
		}
	}
	if name := t.Text.Instruction; name != "" && t.Text.Change.Instructions[name] == "" {
		return t, fail.New(fail.BadInput, "read encoder settings", path, "default_instruction_task is %q, but task_instructions does not say what that is", name)
	}
	return t, nil
}

func (t *tasks) clip() bool { return t.ModelType == "jina_clip" }

// v4 is jina-embeddings-v4, whose model_type is that of its backbone.
func (t *tasks) v4() bool { return slices.Contains(t.Classes, jinav4.Architecture) }

// adapters are those for queries and passages. Jina-CLIP has one for both.
func (t *tasks) adapters() (query, passage string) {
	if t.clip() {
		return t.Text.Adapter, t.Text.Adapter
	}
	known := func(name string) string {
		if slices.Contains(t.Adapters, name) {
			return name
		}
		return ""
	}
	return known("retrieval.query"), known("retrieval.passage")
}

// prefixes are the instructions that go with the adapters; Jina-CLIP's is a setting
// of its own.
func (t *tasks) prefixes(query, passage string) (string, string) {
	if t.clip() {
		p := t.Text.Change.Instructions[t.Text.Instruction]
		return p, p
	}
	return t.Instructions[query], t.Instructions[passage]
}
