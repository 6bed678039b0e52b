package lesson

import (
	"encoding/json"
	"strings"

	"searchloop/rollout/trajectory"
)

// imageMark stands for an image in a text, in both forms.
const imageMark = "<image>"

// form writes conversations of one form.
type form struct {
	name string
	to   *json.Encoder
}

// The forms as their trainers read them. Loss is false on turns of the policy that
// are not to be imitated: those whose call could not be read.
type (
	shareGPT struct {
		ID            string      `json:"id"`
		Conversations []shareTurn `json:"conversations"`
		System        string      `json:"system,omitempty"`
		Tools         string      `json:"tools,omitempty"` // a JSON list, as text
		Images        []string    `json:"images,omitempty"`
	}
	shareTurn struct {
		From  string `json:"from"`
		Value string `json:"value"`
		Loss  *bool  `json:"loss,omitempty"` // written only where it is false
	}
	swift struct {
		ID       string      `json:"id"`
		Messages []swiftTurn `json:"messages"`
		Tools    string      `json:"tools,omitempty"`
		Images   []string    `json:"images,omitempty"`
	}
	swiftTurn struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		Loss    *bool  `json:"loss,omitempty"` // of every turn of the policy
	}
)

var shareRoles = map[string]string{"user": "human", "assistant": "gpt", "tool": "observation"}

// unsayable says why a row has no conversation in these forms; "" when it has.
func unsayable(row *trajectory.Row) string {
	for i := range row.Turns {
		switch t := &row.Turns[i]; {
		case t.Role == "inline":
			return "results stand inside the policy's turns"
		case strings.Contains(t.Text, imageMark):
			return "a text holds the mark " + imageMark
		case len(t.Images) > 0 && t.Role != "user" && t.Role != "tool":
			return "an image in a turn of role " + t.Role
		}
	}
	return ""
}

// write writes one row. cells are the paths of its images; images stand before the
// text of their turn.
func (f form) write(row *trajectory.Row, cells map[string]string, tools json.RawMessage) error {
	var pictures []string
	share := shareGPT{ID: row.ID, Tools: string(tools)}
	other := swift{ID: row.ID, Tools: string(tools)}
	for i := range row.Turns {
		t := &row.Turns[i]
		text := strings.Repeat(imageMark, len(t.Images)) + t.Text
		for _, id := range t.Images {
			pictures = append(pictures, cells[id])
		}
		var loss *bool
		if t.Role == "assistant" {
			learn := t.Error == ""
			loss = &learn
		}
		other.Messages = append(other.Messages, swiftTurn{t.Role, text, loss})
		if t.Role == "system" && i == 0 {
			share.System = text
			continue
		}
		if loss != nil && *loss {
			loss = nil
		}
		from := shareRoles[t.Role]
		if from == "" {
			from = t.Role
		}
		share.Conversations = append(share.Conversations, shareTurn{from, text, loss})
	}
	share.Images, other.Images = pictures, pictures
	if f.name == ShareGPT {
		return f.to.Encode(share)
	}
	return f.to.Encode(other)
}
