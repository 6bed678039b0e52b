package llm

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"searchloop/internal/chat"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/token"
)

// Tokenizer writes a model's prompts as its tokens: for a server that takes nothing
// else (SGLang's native API), and to find the images in the prompt of one that does
// not say where they are (vLLM). Safe for concurrent use.
type Tokenizer struct {
	tok  *token.BPE
	form chat.Format
	proc *picture.Processor // nil: the model reads no images
	pad  int32              // stands for a part of an image

	mu    sync.Mutex
	grids map[[32]byte][3]int32 // of images, by the digest of their bytes
}

// hasTokenizer says whether dir is the folder of a model on this machine.
func hasTokenizer(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, token.File))
	return dir != "" && err == nil
}

// OpenTokenizer reads tokenizer.json, the chat template and, if it is there,
// preprocessor_config.json of a model's folder.
func OpenTokenizer(dir string) (*Tokenizer, error) {
	tok, err := token.LoadBPE(dir)
	if err != nil {
		return nil, err
	}
	form, err := chat.FormatOf(dir)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{tok: tok, form: form, pad: -1, grids: map[[32]byte][3]int32{}}
	if _, err := os.Stat(filepath.Join(dir, "preprocessor_config.json")); err == nil {
		p, err := picture.LoadProcessor(dir)
		if err != nil {
			return nil, err
		}
		t.proc = &p
		t.pad, _ = tok.ID("<|image_pad|>")
	}
	return t, nil
}

// maxGrids bounds what is remembered of images.
const maxGrids = 1 << 16

// grid is what the model's processor makes of a picture.
func (t *Tokenizer) grid(data []byte) ([3]int32, error) {
	if t.proc == nil {
		return [3]int32{}, fail.New(fail.Usage, "count image tokens", "", "the policy's folder has no preprocessor_config.json: the model reads no images")
	}
	key := sha256.Sum256(data)
	t.mu.Lock()
	g, ok := t.grids[key]
	t.mu.Unlock()
	if ok {
		return g, nil
	}
	pic, err := picture.Decode(data)
	if err != nil {
		return g, err
	}
	if g, err = t.proc.Grid(pic.H, pic.W); err != nil {
		return g, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.grids) >= maxGrids {
		clear(t.grids)
	}
	t.grids[key] = g
	return g, nil
}

// prompt renders a request: its tokens, each image as its placeholders.
func (t *Tokenizer) prompt(r Request) (ids []int32, images []PromptImage, err error) {
	p, images, err := t.render(r, false, !r.goesOn())
	if err != nil {
		return nil, nil, err
	}
	return p.IDs, images, nil
}

// Conversation writes a conversation that is over as tokens, by its texts: what a
// model would read, which need not be what it sampled. turns are the stretches of the
// assistant's turns with their end marks; open: the last one was cut, and has none.
func (t *Tokenizer) Conversation(r Request, open bool) (ids []int32, turns [][2]int, images []PromptImage, err error) {
	p, images, err := t.render(r, open, false)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, m := range r.Messages {
		if m.Role == chat.Assistant {
			turns = append(turns, [2]int{p.Spans[i].From, p.Spans[i].To})
		}
	}
	return p.IDs, turns, images, nil
}

// render writes messages, the last one left open or not, and the beginning of the
// next turn where it is asked for.
func (t *Tokenizer) render(r Request, open, begin bool) (p *chat.Prompt, images []PromptImage, err error) {
	var msgs []chat.Message
	for i, m := range r.Messages {
		msg := chat.Message{Role: m.Role, Text: m.Text, TokenIDs: m.TokenIDs, Open: open && i == len(r.Messages)-1}
		for _, data := range m.Images {
			g, err := t.grid(data)
			if err != nil {
				return nil, nil, err
			}
			msg.Images = append(msg.Images, chat.Image{Grid: g, Merge: int32(t.proc.MergeSize)})
			images = append(images, PromptImage{Grid: g})
		}
		msgs = append(msgs, msg)
	}
	var tools []byte
	if list := r.wireTools(); len(list) > 0 {
		if tools, err = encode(list); err != nil {
			return nil, nil, err
		}
	}
	if p, err = t.form.Render(t.tok, msgs, tools, begin); err != nil {
		return nil, nil, err
	}
	for i := range images {
		images[i].Offset = p.ImageOffsets[i]
	}
	return p, images, nil
}

// place finds the images of a request in the prompt that a server says it read:
// each is a run of as many placeholders as the processor's grid makes of it.
func (t *Tokenizer) place(r Request, ids []int32) (images []PromptImage, err error) {
	at := 0
	for _, m := range r.Messages {
		for _, data := range m.Images {
			g, err := t.grid(data)
			if err != nil {
				return nil, err
			}
			for at < len(ids) && ids[at] != t.pad {
				at++
			}
			from := at
			for at < len(ids) && ids[at] == t.pad {
				at++
			}
			if want := t.proc.Tokens(g); at-from != want {
				return nil, fmt.Errorf("image %d has %d placeholders in the server's prompt, its grid %v makes %d", len(images), at-from, g, want)
			}
			images = append(images, PromptImage{Grid: g, Offset: int32(from)})
		}
	}
	for ; at < len(ids); at++ {
		if ids[at] == t.pad {
			return nil, fmt.Errorf("the server's prompt has a placeholder more than %d images need", len(images))
		}
	}
	return images, nil
}

// cut shortens text to at most limit tokens.
func (t *Tokenizer) cut(text string, limit int) string {
	ids := t.tok.EncodeOrdinary(text)
	if len(ids) <= limit {
		return text
	}
	return strings.TrimRight(t.tok.Decode(ids[:limit]), "\uFFFD")
}
