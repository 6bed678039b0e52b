package encoder

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/model/jinav4"
)

// Settings is how a folder's encoder is to be used: searchloop.json.
type Settings struct {
	QueryPrefix    string `json:"query_prefix"`
	PassagePrefix  string `json:"passage_prefix"`
	MaxTokens      int    `json:"max_tokens"`                // with the marks at both ends; 0 = the model's limit
	Dim            int    `json:"dim,omitempty"`             // vectors are cut to it; 0 = they are not
	QueryAdapter   string `json:"query_adapter,omitempty"`   // of those that the model has; "" = what config.json says
	PassageAdapter string `json:"passage_adapter,omitempty"` // the same

	// Read by the model itself; here they are only told on.
	Pooling   string `json:"pooling,omitempty"`
	Normalize *bool  `json:"normalize,omitempty"`
}

// Override replaces single settings; nil keeps the folder's.
type Override struct {
	QueryPrefix, PassagePrefix *string
	MaxTokens, Dim             *int
}

// e5Tokens is the length limit that the E5 index builders and servers of the
// supported systems use; the model itself takes 512.
const e5Tokens = 256

// settingsOf finds the settings of an encoder's folder: searchloop.json, else
// what sentence-transformers keeps, else what config.json (Jina) or the folder's
// name gives away (E5 publishes its prefixes on its model card only).
func settingsOf(dir string) (Settings, error) {
	var s Settings
	t, err := readTasks(dir)
	if err != nil {
		return s, err
	}
	if t.v4() {
		return settingsOfV4(dir, t)
	}
	query, passage := t.adapters()
	found, err := readJSON(filepath.Join(dir, "searchloop.json"), &s, true)
	if err != nil {
		return s, err
	}
	s.QueryAdapter, s.PassageAdapter = cmp.Or(s.QueryAdapter, query), cmp.Or(s.PassageAdapter, passage)
	s.Dim = cmp.Or(s.Dim, t.Cut)
	if found {
		return s, nil
	}
	var st struct {
		Prompts map[string]string `json:"prompts"`
	}
	if _, err := readJSON(filepath.Join(dir, "config_sentence_transformers.json"), &st, false); err != nil {
		return s, err
	}
	s.QueryPrefix = st.Prompts["query"]
	for _, key := range []string{"document", "passage"} {
		if s.PassagePrefix == "" {
			s.PassagePrefix = st.Prompts[key]
		}
	}
	if s.QueryPrefix == "" && s.PassagePrefix == "" {
		if s.QueryPrefix, s.PassagePrefix = t.prefixes(s.QueryAdapter, s.PassageAdapter); s.QueryPrefix == "" && s.PassagePrefix == "" {
			s.QueryPrefix, s.PassagePrefix = st.Prompts[s.QueryAdapter], st.Prompts[s.PassageAdapter]
		}
	}
	if abs, err := filepath.Abs(dir); err == nil && isE5(filepath.Base(abs)) {
		s.MaxTokens = e5Tokens
		if s.QueryPrefix == "" && s.PassagePrefix == "" {
			s.QueryPrefix, s.PassagePrefix = PrefixesByName(abs)
		}
	}
	return s, nil
}

// settingsOfV4 are those of jina-embeddings-v4: what searchloop.json says, else what
// the published code does. Queries and passages have one adapter.
func settingsOfV4(dir string, t tasks) (s Settings, err error) {
	path := filepath.Join(dir, "searchloop.json")
	if _, err := readJSON(path, &s, true); err != nil {
		return s, err
	}
	task := cmp.Or(s.PassageAdapter, s.QueryAdapter, jinav4.Retrieval)
	if cmp.Or(s.QueryAdapter, task) != task {
		return s, fail.New(fail.BadInput, "read encoder settings", path, "query_adapter is %q and passage_adapter %q; jina-embeddings-v4 has one adapter for both", s.QueryAdapter, task)
	}
	if s.Pooling != "" || s.Normalize != nil {
		return s, fail.New(fail.BadInput, "read encoder settings", path, "pooling and normalize are no settings of jina-embeddings-v4: means of length 1 are its vectors")
	}
	s = Settings{Dim: t.Cut}
	s.QueryPrefix, s.PassagePrefix = jinav4.Prompts(task)
	_, err = readJSON(path, &s, true) // over the prompts
	s.QueryAdapter, s.PassageAdapter = task, task
	return s, err
}

// PrefixesByName are the prefixes of a model of which only the name is known: E5's,
// or none.
func PrefixesByName(model string) (query, passage string) {
	if isE5(path.Base(filepath.ToSlash(model))) {
		return "query: ", "passage: "
	}
	return "", ""
}

// isE5: "e5-base-v2", "intfloat_multilingual-e5-small", not "msmarco-distilbe5t".
func isE5(name string) bool {
	for _, part := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r < '0' || r > '9' && r < 'a' || r > 'z' }) {
		if part == "e5" {
			return true
		}
	}
	return false
}

func (s Settings) with(o Override) Settings {
	if o.QueryPrefix != nil {
		s.QueryPrefix = *o.QueryPrefix
	}
	if o.PassagePrefix != nil {
		s.PassagePrefix = *o.PassagePrefix
	}
	if o.MaxTokens != nil {
		s.MaxTokens = *o.MaxTokens
	}
	if o.Dim != nil {
		s.Dim = *o.Dim
	}
	return s
}

// readJSON reads the file at path into v; an absent file is not found and no error.
func readJSON(path string, v any, strict bool) (found bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		if strict {
			d.DisallowUnknownFields()
		}
		err = d.Decode(v)
	}
	return true, fail.Wrap(fail.BadInput, "read encoder settings", path, err)
}

// pooling tells how the model in dir, which loaded, makes one vector of a text's
// tokens: what searchloop.json says, else sentence-transformers' files, else
// E5's way.
func pooling(dir string) (mode string, normalized bool, err error) {
	var s Settings
	var modules []struct{ Path, Type string }
	modes := map[string]any{}
	if _, err = readJSON(filepath.Join(dir, "searchloop.json"), &s, true); err != nil {
		return "", false, err
	}
	listed, err := readJSON(filepath.Join(dir, "modules.json"), &modules, false)
	if err != nil {
		return "", false, err
	}
	mode, normalized = "mean", !listed
	folder := "1_Pooling"
	for _, m := range modules {
		switch filepath.Ext(m.Type) {
		case ".Normalize":
			normalized = true
		case ".Pooling":
			folder = m.Path
		}
	}
	if _, err = readJSON(filepath.Join(dir, folder, "config.json"), &modes, false); err != nil {
		return "", false, err
	}
	if modes["pooling_mode_cls_token"] == true || modes["pooling_mode"] == "cls" {
		mode = "cls"
	}
	if s.Pooling != "" {
		mode = s.Pooling
	}
	if s.Normalize != nil {
		normalized = *s.Normalize
	}
	return mode, normalized, nil
}
