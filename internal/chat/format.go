package chat

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"searchloop/internal/fail"
)

// Format is what the chat templates of one family do otherwise than others: all
// write turns between <|im_start|> and <|im_end|>. The zero value is Qwen3-VL's.
type Format struct {
	System  string // said first when the first message is no system message
	NoTools bool   // the template knows no schemas, and tool is a role like others
}

// Formats of published models.
var (
	Qwen3VL  = Format{}
	Qwen25VL = Format{System: "You are a helpful assistant.", NoTools: true}
	Qwen25   = Format{System: "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}
)

// FormatOf is the format of the model in dir, as its chat template says: that of
// chat_template.jinja, chat_template.json or tokenizer_config.json, the first that
// there is. A folder without any is taken for Qwen3-VL's. A template is not run: it
// is looked through for what formats differ in, and one that does not write such
// turns at all is refused.
func FormatOf(dir string) (Format, error) {
	text, path, err := templateOf(dir)
	if err != nil || text == "" {
		return Format{}, err
	}
	if !strings.Contains(text, "<|im_start|>") || !strings.Contains(text, "<|im_end|>") {
		return Format{}, fail.WithHint(fail.New(fail.BadInput, "read chat template", path, "its turns do not stand between <|im_start|> and <|im_end|>"),
			"models with other turns cannot be used here")
	}
	f := Format{NoTools: !strings.Contains(text, "<tools>")}
	if m := defaultSystem.FindStringSubmatch(text); m != nil {
		f.System = m[1]
	}
	return f, nil
}

// defaultSystem finds a system message that is part of the template itself. Line
// breaks stand in templates as themselves or, inside a string, as \n.
var defaultSystem = regexp.MustCompile(`<\|im_start\|>system(?:\\n|\n)([^<>{}'"\\\n]+)<\|im_end\|>`)

// templateOf returns "" when the folder has none.
func templateOf(dir string) (text, path string, err error) {
	for _, name := range []string{"chat_template.jinja", "chat_template.json", "tokenizer_config.json"} {
		path = filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", path, fail.Wrap(fail.BadInput, "read chat template", path, err)
		}
		if filepath.Ext(name) == ".jinja" {
			return string(data), path, nil
		}
		text, err := templateIn(data)
		if err != nil {
			return "", path, fail.Wrap(fail.BadInput, "read chat template", path, err)
		}
		if text != "" {
			return text, path, nil
		}
	}
	return "", "", nil
}

// templateIn is the field chat_template: a text, or a list of named ones of which
// the default counts.
func templateIn(data []byte) (string, error) {
	var c struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &c); err != nil || len(c.Template) == 0 || string(c.Template) == "null" {
		return "", err
	}
	var text string
	if json.Unmarshal(c.Template, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(c.Template, &named); err != nil {
		return "", err
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", errors.New("chat_template is a list without a default")
}
