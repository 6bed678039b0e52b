package encoder

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"searchloop/internal/fail"
)

// Settings is how a folder's encoder is to be used: searchloop.json.
type Settings struct {
	QueryPrefix   string `json:"query_prefix"`
	PassagePrefix string `json:"passage_prefix"`
	MaxTokens     int    `json:"max_tokens"` // with the marks at both ends; 0 = the model's limit

	// Read by the model itself; here they are only told on.
	Pooling   string `json:"pooling,omitempty"`
	Normalize *bool  `json:"normalize,omitempty"`
}

// Override replaces single settings; nil keeps the folder's.
type Override struct {
	QueryPrefix, PassagePrefix *string
	MaxTokens                  *int
}

// e5Tokens is the length limit that the E5 index builders and servers of the
// supported systems use; the model itself takes 512.
const e5Tokens = 256

// settingsOf finds the settings of an encoder's folder: searchloop.json, else
// what sentence-transformers keeps, else what the folder's name gives away (E5
// publishes its prefixes on its model card only).
func settingsOf(dir string) (Settings, error) {
	var s Settings
	found, err := readJSON(filepath.Join(dir, "searchloop.json"), &s, true)
	if err != nil || found {
		return s, err
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
	var length struct {
		MaxSeqLength int `json:"max_seq_length"`
	}
	if _, err := readJSON(filepath.Join(dir, "sentence_bert_config.json"), &length, false); err != nil {
		return s, err
	}
	s.MaxTokens = length.MaxSeqLength
	if abs, err := filepath.Abs(dir); err == nil && isE5(filepath.Base(abs)) {
		s.MaxTokens = e5Tokens
		if s.QueryPrefix == "" && s.PassagePrefix == "" {
			s.QueryPrefix, s.PassagePrefix = "query: ", "passage: "
		}
	}
	return s, nil
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
