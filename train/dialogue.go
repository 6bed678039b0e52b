package train

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"searchloop/internal/chat"
	"searchloop/internal/fail"
)

// dialogue is a conversation from a file of examples, not yet rendered.
type dialogue struct {
	path   string
	row    int64 // 1-based
	id     string
	turns  []dialogueTurn
	tools  json.RawMessage // of this row; empty: the job's
	broken *Refusal        // why it cannot be used; turns are then not there
}

type dialogueTurn struct {
	role, text string
	images     []string // SHA-256
	at         []int    // where each stands in text
	learn      bool
}

// The forms in which examples are found: LLaMA-Factory's ShareGPT
// (conversations of from and value, with human, gpt, observation, function_call)
// and messages of role and content as OpenAI, LLaMA-Factory and ms-swift write
// them. images are taken in the order of the <image> marks in the text.
type rawDialogue struct {
	ID            json.RawMessage `json:"id"`
	Conversations []rawTurn       `json:"conversations"`
	Messages      []rawTurn       `json:"messages"`
	System        string          `json:"system"`
	Tools         json.RawMessage `json:"tools"`
	Images        json.RawMessage `json:"images"`
	Videos        json.RawMessage `json:"videos"`
	Audios        json.RawMessage `json:"audios"`
}

type rawTurn struct {
	From    string          `json:"from"`
	Value   string          `json:"value"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   []struct {
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	Learn  any `json:"loss"`   // ms-swift: whether the turn is trained
	Weight any `json:"weight"` // OpenAI: the same as 0 or 1
}

// imageMark stands for an image in a text.
const imageMark = "<image>"

// readDialogues reads a file of examples: a JSON list, or one object a line.
// Rows that cannot be used are returned with their reason; a file that is no
// JSON is an error.
func readDialogues(path string, images *Pictures) ([]*dialogue, error) {
	const op = "read conversations"
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, op, path, err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	dec := json.NewDecoder(r)
	first, err := firstByte(r)
	if err != nil {
		return nil, fail.New(fail.BadInput, op, path, "the file is empty")
	}
	list := first == '['
	if list {
		if _, err := dec.Token(); err != nil {
			return nil, fail.Wrap(fail.BadInput, op, path, err)
		}
	}
	var out []*dialogue
	for n := int64(1); ; n++ {
		if list && !dec.More() {
			break
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); !list && errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			e := fail.New(fail.BadInput, op, path, "%v", err)
			e.Row, e.Hint = n, "a JSON list of conversations, or one object a line"
			return nil, e
		}
		d := &dialogue{path: path, row: n, id: fmt.Sprintf("%s:%d", filepath.Base(path), n)}
		d.broken = d.parse(raw, images)
		out = append(out, d)
	}
	if list {
		if _, err := dec.Token(); err != nil {
			return nil, fail.WithHint(fail.Wrap(fail.BadInput, op, path, err), "the list is not closed: was the file cut?")
		}
	}
	return out, nil
}

func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b, r.UnreadByte()
		}
	}
}

func (d *dialogue) parse(text json.RawMessage, images *Pictures) *Refusal {
	var raw rawDialogue
	if err := json.Unmarshal(text, &raw); err != nil {
		return refuse(NotRendered, "%v", err)
	}
	if id := strings.Trim(string(raw.ID), `"`); id != "" && id != "null" {
		d.id += " " + id
	}
	if some(raw.Videos) || some(raw.Audios) {
		return refuse(NotRendered, "videos and audios are not read")
	}
	turns := raw.Messages
	if len(turns) == 0 {
		turns = raw.Conversations
	}
	if len(turns) == 0 {
		return refuse(NotRendered, "neither messages nor conversations")
	}
	var err error
	if d.tools, err = toolList(raw.Tools); err != nil {
		return refuse(NotRendered, "tools: %v", err)
	}
	g := gallery{dir: filepath.Dir(d.path), pictures: images}
	if err := g.list(raw.Images); err != nil {
		return refuse(NoImage, "%v", err)
	}
	if raw.System != "" {
		d.turns = append(d.turns, dialogueTurn{role: chat.System, text: raw.System})
	}
	for i := range turns {
		if r := d.turn(&turns[i], &g); r != nil {
			r.Detail = fmt.Sprintf("turn %d: %s", i+1, r.Detail)
			return r
		}
	}
	if g.next != len(g.ids) {
		return refuse(BadImages, "%d images, %d of them have a place: every image needs an %s in the text", len(g.ids), g.next, imageMark)
	}
	return nil
}

func some(raw json.RawMessage) bool {
	s := strings.TrimSpace(string(raw))
	return s != "" && s != "null" && s != "[]" && s != `""`
}

// toolList accepts a list, or a string that holds one.
func toolList(raw json.RawMessage) (json.RawMessage, error) {
	if !some(raw) {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	return raw, nil
}

// turn adds one message. A call that follows an assistant's text belongs into
// the same turn.
func (d *dialogue) turn(raw *rawTurn, g *gallery) *Refusal {
	t := dialogueTurn{learn: !off(raw.Learn) && !off(raw.Weight)}
	call := false
	switch role := cmp.Or(raw.Role, raw.From); role {
	case "system", "user", "assistant", "tool":
		t.role = role
	case "human":
		t.role = chat.User
	case "gpt", "model":
		t.role = chat.Assistant
	case "observation", "tool_response", "function_response":
		t.role = chat.Tool
	case "function_call", "tool_call":
		t.role, call = chat.Assistant, true
	default:
		return refuse(NotRendered, "role %q", role)
	}
	text, err := g.content(raw, &t)
	if err != nil {
		return refuse(NoImage, "%v", err)
	}
	if call {
		if text, err = callText(text); err != nil {
			return refuse(NotRendered, "%v", err)
		}
	}
	for _, c := range raw.Calls {
		s, err := chat.CallText(c.Function.Name, c.Function.Arguments)
		if err != nil {
			return refuse(NotRendered, "%v", err)
		}
		text = joinLines(text, s)
	}
	if t.role != chat.User && t.role != chat.Tool {
		if len(t.images) > 0 {
			return refuse(BadImages, "an image in a %s turn", t.role)
		}
		t.text = text
	} else if r := g.place(text, &t); r != nil {
		return r
	}
	t.learn = t.learn && t.role == chat.Assistant
	if n := len(d.turns); t.role == chat.Assistant && n > 0 && d.turns[n-1].role == chat.Assistant {
		if !call || d.turns[n-1].learn != t.learn {
			return refuse(NotRendered, "two assistant turns in a row")
		}
		d.turns[n-1].text = joinLines(d.turns[n-1].text, t.text)
		return nil
	}
	d.turns = append(d.turns, t)
	return nil
}

func joinLines(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}

// off is false or 0.
func off(v any) bool { return v == false || v == 0.0 }

// callText spells {"name", "arguments"}, or a list of them.
func callText(text string) (string, error) {
	type call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	var list []call
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		var one call
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			return "", fmt.Errorf("a function call that is no JSON: %v", err)
		}
		list = []call{one}
	}
	out := ""
	for _, c := range list {
		if c.Name == "" {
			return "", errors.New("a function call without a name")
		}
		s, err := chat.CallText(c.Name, c.Arguments)
		if err != nil {
			return "", err
		}
		out = joinLines(out, s)
	}
	return out, nil
}

// gallery are the images of a row, in the order in which the text asks for them.
type gallery struct {
	dir      string // what paths are relative to
	pictures *Pictures
	ids      []string
	next     int
}

// list reads the row's images: paths, data URLs, or objects that hold either.
func (g *gallery) list(raw json.RawMessage) error {
	if !some(raw) {
		return nil
	}
	var items []any
	if err := json.Unmarshal(raw, &items); err != nil {
		var one any
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		items = []any{one}
	}
	for i, item := range items {
		id, err := g.pictures.Add(item, g.dir)
		if err != nil {
			return fmt.Errorf("image %s: %w", strconv.Itoa(i+1), err)
		}
		g.ids = append(g.ids, id)
	}
	return nil
}

// content is the text of a turn. Images that stand in it themselves are listed
// where they are used, with a mark in the text.
func (g *gallery) content(raw *rawTurn, t *dialogueTurn) (string, error) {
	if len(raw.Content) == 0 || bytes.Equal(raw.Content, []byte("null")) {
		return raw.Value, nil
	}
	var text string
	if json.Unmarshal(raw.Content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Image    any    `json:"image"`
		ImageURL any    `json:"image_url"`
	}
	if err := json.Unmarshal(raw.Content, &parts); err != nil {
		return "", fmt.Errorf("content is neither text nor a list of parts: %w", err)
	}
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Type == "text":
			b.WriteString(p.Text)
		case p.Image != nil || p.ImageURL != nil:
			item := p.Image
			if item == nil {
				item = p.ImageURL
			}
			id, err := g.pictures.Add(item, g.dir)
			if err != nil {
				return "", err
			}
			t.images, t.at = append(t.images, id), append(t.at, b.Len())
		case p.Type == "image": // its content is in the row's images
			b.WriteString(imageMark)
		default:
			return "", fmt.Errorf("a part of type %q", p.Type)
		}
	}
	return b.String(), nil
}

// place takes the marks out of a text and puts the row's images there.
func (g *gallery) place(text string, t *dialogueTurn) *Refusal {
	if len(t.images) > 0 { // they stand in the text already; a mark is text then
		t.text = text
		return nil
	}
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, imageMark)
		b.WriteString(before)
		if !ok {
			break
		}
		if g.next == len(g.ids) {
			return refuse(BadImages, "an %s more than images", imageMark)
		}
		t.images, t.at = append(t.images, g.ids[g.next]), append(t.at, b.Len())
		g.next++
		text = after
	}
	t.text = b.String()
	return nil
}
