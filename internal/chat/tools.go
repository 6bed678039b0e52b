package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"searchloop/internal/fail"
)

// The words around tool schemas: fixed by what the models were trained on.
const (
	toolsHead = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
	toolsTail = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" +
		"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
)

// toolText returns the schemas, one a line, spelled as Python's json.dumps does;
// "" when there are none.
func toolText(tools json.RawMessage) (string, error) {
	if len(bytes.TrimSpace(tools)) == 0 {
		return "", nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(tools, &list); err != nil {
		return "", fail.New(fail.BadInput, "render conversation", "", "tools are not a JSON list: %v", err)
	}
	var b strings.Builder
	for i, t := range list {
		b.WriteByte('\n')
		if err := dump(&b, t); err != nil {
			return "", fail.New(fail.BadInput, "render conversation", "", "tool %d: %v", i+1, err)
		}
	}
	return b.String(), nil
}

// CallText is how an assistant message spells a call: name and the JSON of its
// arguments, or, as OpenAI's clients send it, a JSON string that holds that JSON
// and is written as it is. A line break stands between it and what comes before.
func CallText(name string, arguments json.RawMessage) (string, error) {
	var b strings.Builder
	b.WriteString("<tool_call>\n{\"name\": ")
	quote(&b, name)
	b.WriteString(", \"arguments\": ")
	arguments = bytes.TrimSpace(arguments)
	var text string
	if len(arguments) == 0 {
		b.WriteString("{}")
	} else if arguments[0] == '"' && json.Unmarshal(arguments, &text) == nil {
		b.WriteString(text)
	} else if err := dump(&b, arguments); err != nil {
		return "", fail.New(fail.BadInput, "render conversation", "", "arguments of %s: %v", name, err)
	}
	b.WriteString("}\n</tool_call>")
	return b.String(), nil
}

// dump writes a JSON value with Python's separators, keys in their order, numbers
// as they were.
func dump(b *strings.Builder, raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	type level struct {
		object bool
		n      int // keys and values so far
	}
	var stack []level
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) && len(stack) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		delim, isDelim := t.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			b.WriteByte(byte(delim))
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 {
			top := &stack[len(stack)-1]
			switch {
			case top.object && top.n%2 == 1:
				b.WriteString(": ")
			case top.n > 0:
				b.WriteString(", ")
			}
			top.n++
		}
		switch v := t.(type) {
		case json.Delim:
			b.WriteByte(byte(v))
			stack = append(stack, level{object: v == '{'})
		case string:
			quote(b, v)
		case json.Number:
			b.WriteString(v.String())
		case bool:
			b.WriteString(strconv.FormatBool(v))
		case nil:
			b.WriteString("null")
		}
	}
}

// quote writes s as Python's json.dumps(ensure_ascii=False).
func quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if r < 0x20 {
				const hex = "0123456789abcdef"
				b.WriteString(`\u00` + string(hex[r>>4]) + string(hex[r&15]))
			} else {
				b.Write(utf8.AppendRune(nil, r))
			}
		}
	}
	b.WriteByte('"')
}
