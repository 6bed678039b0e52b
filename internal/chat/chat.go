// Package chat writes conversations the way Qwen's models read them.
//
// Messages and a tokenizer go in; token ids come out, with the place of every
// image and of every message's content. A turn is
//
//	<|im_start|>role⏎content<|im_end|>⏎
//
// and an image is <|vision_start|>, one <|image_pad|> for each of its tokens, and
// <|vision_end|>, before the text. Tool results are user turns in <tool_response>;
// results that follow each other share a turn. What differs between models is a
// Format. What the environment says inside an
// assistant's turn (role Inline) stands where it is, without marks: the turn goes on
// after it.
//
// What comes from outside cannot leave its place: special tokens in a message's
// text are ordinary characters. Text is never trimmed or dropped. The package
// reads no answers: what a policy wrote is the protocol's business.
package chat

import (
	_ "embed"
	"encoding/json"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/token"
)

// Template is the same as a Jinja template, for the checkpoints that other servers
// are to load: a file chat_template.jinja beside the weights.
//
//go:embed template.jinja
var Template string

// Roles of a message.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
	Tool      = "tool"
	Inline    = "inline" // text that is put into the assistant's turn before it, which goes on
)

// Message is one message of a conversation.
type Message struct {
	Role   string
	Text   string
	Images []Image // user and tool only; they stand before the text, unless At says otherwise
	At     []int   // byte offset in Text of each image, ascending; nil: all 0
	// TokenIDs are the ids that a policy sampled for this assistant message, with
	// its end mark; Text is then not looked at, so that what was sampled is what is
	// read again. A missing end mark (a turn cut by its limit) is added.
	TokenIDs []int32
	// Open: this assistant message is the beginning of a turn. No end mark is added,
	// and the turn goes on with the next message, Inline or Assistant, or with what is
	// sampled. Before an Inline message every assistant message is open.
	Open bool
}

// Image is a picture by its size.
type Image struct {
	Grid  [3]int32 // patches in time, rows, columns
	Merge int32    // patches of a token's side; 0 means 2
}

// Tokens is the number of tokens that the image takes.
func (m Image) Tokens() int {
	merge := int(m.Merge)
	if merge == 0 {
		merge = 2
	}
	return int(m.Grid[0]) * int(m.Grid[1]) * int(m.Grid[2]) / (merge * merge)
}

// Prompt is a rendered conversation.
type Prompt struct {
	IDs          []int32
	ImageOffsets []int32 // index in IDs of each image's first image_pad
	Spans        []Span  // of each message
}

// Span is where a message's content lies in the ids, [From, To): images and text;
// for an assistant its text and the end mark, which is what it has to learn to
// write. A line break that the tokenizer joins with the one before the content
// counts as content.
type Span struct{ From, To int }

const maxImageTokens = 1 << 20

// Render writes messages, ending with the beginning of an assistant turn when
// generationPrompt is set. tools is a JSON list of tool schemas or empty.
//
// Rendering is prefix-preserving: the ids of a conversation with a generation
// prompt, followed by sampled ids, begin the ids of every conversation that goes
// on with an assistant message of those TokenIDs. That holds for Inline messages
// too: their text is encoded on its own, and a last message that is Inline or Open
// is already the beginning of the turn to be generated.
//
// Errors are BadInput, with the number of the message (from 1) as Row.
func (f Format) Render(tok *token.BPE, msgs []Message, tools json.RawMessage, generationPrompt bool) (*Prompt, error) {
	w, err := newWriter(tok)
	if err != nil {
		return nil, err
	}
	w.plain = f.NoTools
	schemas, err := toolText(tools)
	if err != nil {
		return nil, err
	}
	if schemas != "" && f.NoTools {
		return nil, fail.WithHint(fail.New(fail.BadInput, "render conversation", "", "the model's chat template shows no tools"),
			"describe them in the system message, or put a chat_template.jinja with tools into the model's folder")
	}
	system := len(msgs) > 0 && msgs[0].Role == System
	if schemas == "" && !system && f.System != "" {
		w.mark(w.start)
		w.text(System + "\n" + f.System)
		w.mark(w.end)
		w.text("\n")
	}
	if schemas != "" {
		var text string
		switch {
		case system:
			text = msgs[0].Text + "\n\n"
		case f.System != "":
			text = f.System + "\n\n"
		}
		w.mark(w.start)
		span := w.content(System+"\n", text, toolsHead+schemas+toolsTail)
		w.mark(w.end)
		w.text("\n")
		if system {
			if len(msgs[0].Images) > 0 {
				return nil, bad(0, "a system message cannot hold images")
			}
			w.spans = append(w.spans, span)
		}
	}
	for i := range msgs {
		if i == 0 && len(w.spans) == 1 {
			continue
		}
		if err := w.message(msgs, i); err != nil {
			return nil, err
		}
	}
	if generationPrompt && !continues(msgs, len(msgs)) {
		w.mark(w.start)
		w.text(Assistant + "\n")
	}
	return &Prompt{IDs: w.ids, ImageOffsets: w.offsets, Spans: w.spans}, nil
}

// continues says whether message i (or what is sampled, when i is beyond the last)
// stands inside the turn of the message before it.
func continues(msgs []Message, i int) bool {
	return i > 0 && (msgs[i-1].Role == Inline || msgs[i-1].Role == Assistant && msgs[i-1].Open)
}

func bad(i int, format string, args ...any) error {
	e := fail.New(fail.BadInput, "render conversation", "", format, args...)
	e.Row = int64(i + 1)
	return e
}

// writer appends to the ids.
type writer struct {
	tok               *token.BPE
	start, end        int32
	visionStart, pad  int32 // -1: the tokenizer has no images
	visionEnd, videos int32
	ids               []int32
	offsets           []int32
	spans             []Span
	plain             bool // tool is a role like others
}

func newWriter(tok *token.BPE) (*writer, error) {
	w := &writer{tok: tok}
	for _, t := range []struct {
		name string
		id   *int32
		must bool
	}{
		{"<|im_start|>", &w.start, true}, {"<|im_end|>", &w.end, true},
		{"<|vision_start|>", &w.visionStart, false}, {"<|vision_end|>", &w.visionEnd, false},
		{"<|image_pad|>", &w.pad, false}, {"<|video_pad|>", &w.videos, false},
	} {
		id, ok := tok.ID(t.name)
		if !ok {
			if id = -1; t.must {
				return nil, fail.New(fail.BadInput, "render conversation", "", "the tokenizer has no %s: it is not one for chat", t.name)
			}
		}
		*t.id = id
	}
	return w, nil
}

func (w *writer) mark(id int32) { w.ids = append(w.ids, id) }

func (w *writer) text(s string) { w.ids = w.tok.AppendOrdinary(w.ids, s) }

// content writes head, text and tail as one text, since tokens may cross their
// borders, and returns the span of the text.
func (w *writer) content(head, text, tail string) Span {
	from := len(w.ids)
	w.text(head + text + tail)
	// The head's tokens, as far as they are the same without the text.
	alone := w.tok.EncodeOrdinary(head)
	n := 0
	for n < len(alone) && from+n < len(w.ids) && w.ids[from+n] == alone[n] {
		n++
	}
	to := len(w.ids)
	if tail != "" {
		after := w.tok.EncodeOrdinary(tail)
		for m := len(after); m > 0 && to > from+n && w.ids[to-1] == after[m-1]; m-- {
			to--
		}
	}
	return Span{from + n, to}
}

// before is the role of the message before the i-th.
func before(msgs []Message, i int) string {
	if i == 0 {
		return "missing"
	}
	return msgs[i-1].Role
}

// message writes messages[i].
func (w *writer) message(msgs []Message, i int) error {
	m := &msgs[i]
	if continues(msgs, i) && m.Role != Inline && m.Role != Assistant {
		return bad(i, "a %s message inside an assistant's turn that is not over", m.Role)
	}
	if len(m.TokenIDs) > 0 && m.Role != Assistant {
		return bad(i, "token ids of a %s message: only an assistant's are sampled", m.Role)
	}
	if len(m.Images) > 0 && m.Role != User && m.Role != Tool {
		return bad(i, "an image in a %s message", m.Role)
	}
	head, tail := m.Role+"\n", ""
	opens, closes := true, true
	switch m.Role {
	case System, User:
	case Assistant:
		return w.assistant(msgs, i)
	case Inline:
		if i == 0 || msgs[i-1].Role != Assistant && msgs[i-1].Role != Inline {
			return bad(i, "inline text after a %s message: it belongs into an assistant's turn", before(msgs, i))
		}
		from := len(w.ids)
		w.text(m.Text)
		w.spans = append(w.spans, Span{from, len(w.ids)})
		return nil
	case Tool:
		if w.plain {
			break
		}
		opens = i == 0 || msgs[i-1].Role != Tool
		closes = i+1 == len(msgs) || msgs[i+1].Role != Tool
		head, tail = "\n<tool_response>\n", "\n</tool_response>"
		if opens {
			head = User + head
		}
	default:
		return bad(i, "role %q is none of system, user, assistant, tool, inline", m.Role)
	}
	if opens {
		w.mark(w.start)
	}
	if m.At != nil && len(m.At) != len(m.Images) {
		return bad(i, "%d places for %d images", len(m.At), len(m.Images))
	}
	from, done := -1, 0 // of the span, of the text
	for k, im := range m.Images {
		at := 0
		if m.At != nil {
			at = m.At[k]
		}
		if at < done || at > len(m.Text) {
			return bad(i, "image %d stands at %d of a text of %d bytes", k+1, at, len(m.Text))
		}
		if k == 0 {
			from = w.content(head, m.Text[:at], "").From
			head = ""
		} else {
			w.text(m.Text[done:at])
		}
		done = at
		if err := w.image(im); err != nil {
			return bad(i, "image %d: %v", k+1, err)
		}
	}
	span := w.content(head, m.Text[done:], tail)
	if from >= 0 {
		span.From = from
	}
	w.spans = append(w.spans, span)
	if closes {
		w.mark(w.end)
		w.text("\n")
	}
	return nil
}

func (w *writer) image(im Image) error {
	n := im.Tokens()
	if w.visionStart < 0 || w.visionEnd < 0 || w.pad < 0 {
		return fail.New(fail.BadInput, "", "", "the tokenizer has no image tokens: the model reads none")
	}
	if im.Grid[0] < 1 || im.Grid[1] < 1 || im.Grid[2] < 1 || n < 1 || n > maxImageTokens {
		return fail.New(fail.BadInput, "", "", "grid %v", im.Grid)
	}
	w.mark(w.visionStart)
	w.offsets = append(w.offsets, int32(len(w.ids)))
	for range n {
		w.mark(w.pad)
	}
	w.mark(w.visionEnd)
	return nil
}

// assistant writes an assistant turn: its content is never joined with the line
// break of the header, because nothing is when it is sampled.
func (w *writer) assistant(msgs []Message, i int) error {
	m := &msgs[i]
	open := m.Open || i+1 < len(msgs) && msgs[i+1].Role == Inline
	if !continues(msgs, i) {
		w.mark(w.start)
		w.text(Assistant + "\n")
	}
	from := len(w.ids)
	if m.TokenIDs == nil {
		w.text(m.Text)
	}
	for k, id := range m.TokenIDs {
		switch {
		case id < 0 || int(id) >= w.tok.Size():
			return bad(i, "token id %d is %d, outside of the vocabulary of %d", k, id, w.tok.Size())
		case id == w.visionStart || id == w.visionEnd || id == w.pad || id == w.videos:
			return bad(i, "token id %d is %s, which stands for an image that is not there", k, strings.TrimSpace(w.tok.Decode([]int32{id})))
		}
		w.mark(id)
	}
	if !open && (len(w.ids) == from || w.ids[len(w.ids)-1] != w.end) {
		w.mark(w.end)
	}
	w.spans = append(w.spans, Span{from, len(w.ids)})
	if !open {
		w.text("\n")
	}
	return nil
}
