package llm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"

	"searchloop/internal/manifest"
	"searchloop/internal/retry"
	"searchloop/internal/tape"
)

// Kinds of records on a tape; see docs/record.md.
const (
	chatKind   = "chat"
	cutKind    = "cut"
	modelsKind = "models"
	embedKind  = "embed"
)

// asked is a request as it is recorded: without the server's address and key, and
// with digests in the place of images and sampled tokens.
type asked struct {
	To          string          `json:"to"`
	Model       string          `json:"model"`
	Messages    []askedMessage  `json:"messages"`
	Tools       []Tool          `json:"tools,omitempty"`
	MaxTokens   int             `json:"max_tokens"`
	Temperature float32         `json:"temperature"`
	TopP        float32         `json:"top_p"`
	TopK        int             `json:"top_k"`
	Seed        int64           `json:"seed"`
	Stop        []string        `json:"stop,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	TokenIDs    bool            `json:"token_ids"`
}

type askedMessage struct {
	Role   string   `json:"role"`
	Text   string   `json:"text"`
	Images []string `json:"images,omitempty"` // SHA-256
	Tokens string   `json:"tokens,omitempty"` // SHA-256 of the ids as 4 bytes each, little-endian
}

// asked names a request for the tape.
func (c *Client) asked(r Request) asked {
	out := asked{To: c.opt.Name, Model: c.opt.Model, Tools: r.Tools, MaxTokens: r.MaxTokens, Temperature: r.Temperature, TopP: r.TopP,
		TopK: r.TopK, Seed: r.Seed, Stop: r.Stop, Schema: r.Schema, TokenIDs: r.TokenIDs}
	for _, m := range r.Messages {
		a := askedMessage{Role: m.Role, Text: m.Text}
		for _, data := range m.Images {
			a.Images = append(a.Images, manifest.Hash(data))
		}
		if len(m.TokenIDs) > 0 {
			h := sha256.New()
			_ = binary.Write(h, binary.LittleEndian, m.TokenIDs) // a hash takes everything
			a.Tokens = hex.EncodeToString(h.Sum(nil))
		}
		out.Messages = append(out.Messages, a)
	}
	return out
}

// taped answers a request from the client's tape, or else by ask.
func taped[T any](c *Client, op, kind string, request any, ask func() (T, error)) (T, error) {
	return tape.Through(c.opt.Tape, kind, request, func(f *retry.Fault) error { return c.failure(op, c.shown, f) }, ask)
}
