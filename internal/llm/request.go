// Package llm is the client of an OpenAI-compatible chat server: a policy, a
// judge, or any other model. A conversation goes in, the model's turn comes out,
// with token ids and log-probs where the server gives them.
//
// It owns everything that can go wrong on the way: each failure has a class, is
// retried or not by that class (package retry), and never comes out as a reply.
// It judges no content and keeps no conversation.
package llm

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
)

// Message is one message of a conversation. Images stand before the text.
type Message struct {
	Role   string // system, user, assistant, tool, inline (put into the assistant's turn before it, which goes on)
	Text   string
	Images [][]byte // encoded pictures (JPEG, PNG, …), sent as data URLs; not copied

	// TokenIDs of an assistant message are the ids it was sampled as, end mark
	// included. A server that knows the extension uses them instead of encoding
	// Text again, so that no prompt ever differs from what was sampled.
	TokenIDs []int32
}

// Tool describes one function to the server's chat template.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage // JSON schema
}

// Request is one turn asked for. Sampling numbers are always sent, zero included:
// a temperature that is left out means 1 to most servers.
type Request struct {
	Messages    []Message
	Tools       []Tool
	MaxTokens   int // 0: the server's default
	Temperature float32
	TopP        float32 // 0 or 1: off
	TopK        int     // 0 or -1: off
	Seed        int64
	Stop        []string        // texts that end the turn; the reply keeps the one that did
	Schema      json.RawMessage // JSON schema that the reply must fit; nil: free text. A server that knows no schemas is asked without
	TokenIDs    bool            // ask for token ids and log-probs

	kept *written // of the conversation; nil: it is one turn
}

// Reply is the model's turn.
type Reply struct {
	Text   string // as sampled, without the end mark
	Finish string // stop, length

	TokenIDs    []int32   // sampled ids with the end mark; nil when the server gives none
	Logprobs    []float32 // one per id of TokenIDs; nil when the server gives none
	LogprobMode string    // processed, raw, none; see package trajectory
	PromptIDs   []int32   // the whole prompt as the model saw it; nil when the server gives none
	Images      []PromptImage

	PromptTokens int    // by PromptIDs, or else by the server's usage; 0 when it tells neither
	ReplyTokens  int    // likewise
	Stop         string // the stop text that ended the turn, as the server tells it; "" for none or not told
	Policy       string // identity of the weights that answered, as the server names it; may be ""
	Attempts     int    // HTTP calls made for this reply
}

// message is a message as it is sent: an assistant's turn that the environment
// wrote into is one message.
type message struct {
	Message
	segments []segment // nil: no inline text in it
}

// segment is a piece of such a turn.
type segment struct {
	TokenIDs []int32 `json:"token_ids,omitempty"`
	Text     string  `json:"text,omitempty"`
}

// joined puts inline texts, and the turns that go on after them, into the
// assistant message before.
func (r *Request) joined() []message {
	var out []message
	if r.kept != nil {
		out = r.kept.list[:0]
	}
	out = slices.Grow(out, len(r.Messages))
	for i, m := range r.Messages {
		inside := m.Role == Inline || m.Role == "assistant" && i > 0 && r.Messages[i-1].Role == Inline
		if !inside || len(out) == 0 {
			out = append(out, message{Message: m})
			continue
		}
		last := &out[len(out)-1]
		if last.segments == nil {
			last.segments = []segment{piece(last.Message)}
		}
		last.segments = append(last.segments, piece(m))
		last.Text, last.TokenIDs = last.Text+m.Text, nil
	}
	if r.kept != nil {
		r.kept.list = out
	}
	return out
}

func piece(m Message) segment {
	if len(m.TokenIDs) > 0 {
		return segment{TokenIDs: m.TokenIDs}
	}
	return segment{Text: m.Text}
}

// goesOn says whether the turn asked for is the rest of one that has begun.
func (r Request) goesOn() bool {
	return len(r.Messages) > 0 && r.Messages[len(r.Messages)-1].Role == Inline
}

// Inline is the role of text that the environment puts into an assistant's turn.
const Inline = "inline"

// PromptImage is where one image stands in PromptIDs.
type PromptImage struct {
	Grid   [3]int32 `json:"grid"`   // patches in time, rows, columns, before merging
	Offset int32    `json:"offset"` // index of its first placeholder token
}

// DataURL is the picture as a data URL, its type found by its first bytes.
func DataURL(picture []byte) string {
	return "data:" + http.DetectContentType(picture) + ";base64," + base64.StdEncoding.EncodeToString(picture)
}
