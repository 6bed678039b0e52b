package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"searchloop/internal/chat"
)

// tooLong is the error that clients recognise; format says what has how many tokens.
func tooLong(format string, n, context int) *apiError {
	return badRequest("messages", "context_length_exceeded", "this model's maximum context length is %d tokens, but "+format, context, n)
}

// prompt renders a request's messages and makes their images ready.
func (s *Server) prompt(ctx context.Context, q *chatRequest) (*prompt, error) {
	msgs := make([]chat.Message, 0, len(q.Messages))
	var pictures []*prepared
	for i := range q.Messages {
		m := &q.Messages[i]
		if m.Role == "developer" { // OpenAI's newer name
			m.Role = chat.System
		}
		if len(m.Segments) > 0 {
			list, err := m.pieces(i)
			if err != nil {
				return nil, err
			}
			msgs = append(msgs, list...)
			continue
		}
		if m.Role == chat.Inline {
			return nil, badRequest(fmt.Sprintf("messages[%d].role", i), "unsupported", "messages[%d]: what stands inside a turn is one of its segments", i)
		}
		msg := chat.Message{Role: m.Role, TokenIDs: m.TokenIDs}
		if err := s.content(ctx, m, &msg, &pictures, i); err != nil {
			return nil, err
		}
		msgs = append(msgs, msg)
	}
	if last := &msgs[len(msgs)-1]; q.goesOn() && last.Role == chat.Assistant {
		last.Open = true
	} else if !q.goesOn() && last.Role == chat.Inline {
		return nil, badRequest("continue_final_message", "contradiction", "the final message ends inside of its turn, and is not to be gone on with")
	}
	r, err := s.format.Render(s.tok, msgs, q.Tools, q.Begin == nil || *q.Begin)
	if err != nil {
		return nil, err
	}
	if len(r.IDs) >= s.engine.context {
		return nil, tooLong("the messages take %d of them", len(r.IDs), s.engine.context)
	}
	p := &prompt{ids: r.IDs, images: make([]promptImage, len(pictures))}
	grids := make([][3]int32, len(pictures))
	for i, im := range pictures {
		grids[i] = im.grid
		p.images[i] = promptImage{grid: im.grid, offset: int(r.ImageOffsets[i]), key: im.key, patches: im.patches,
			tokens: chat.Image{Grid: im.grid, Merge: int32(s.engine.spec.Merge)}.Tokens()}
	}
	p.pos, p.next, err = s.engine.model.Positions(p.ids, grids)
	return p, err
}

// pieces are the segments of message i as messages of one turn.
func (m *chatMessage) pieces(i int) ([]chat.Message, error) {
	if m.Role != chat.Assistant || len(m.TokenIDs) > 0 {
		return nil, badRequest(fmt.Sprintf("messages[%d].segments", i), "contradiction", "messages[%d]: only an assistant's turn has segments, and token_ids stand in them", i)
	}
	var out []chat.Message
	for k, g := range m.Segments {
		switch {
		case len(g.TokenIDs) > 0 && g.Text != "":
			return nil, badRequest(fmt.Sprintf("messages[%d].segments[%d]", i, k), "contradiction", "messages[%d].segments[%d] is both ids and text", i, k)
		case len(g.TokenIDs) > 0:
			out = append(out, chat.Message{Role: chat.Assistant, TokenIDs: g.TokenIDs, Open: k+1 < len(m.Segments)})
		case len(out) == 0: // text before anything was sampled
			out = append(out, chat.Message{Role: chat.Assistant, Text: g.Text, Open: k+1 < len(m.Segments)})
		default:
			out = append(out, chat.Message{Role: chat.Inline, Text: g.Text})
		}
	}
	return out, nil
}

// content fills msg with the text and images of message i.
func (s *Server) content(ctx context.Context, m *chatMessage, msg *chat.Message, pictures *[]*prepared, i int) error {
	at := func(format string, args ...any) string {
		return fmt.Sprintf("messages[%d]", i) + fmt.Sprintf(format, args...)
	}
	var parts []chatPart
	switch {
	case len(m.Content) == 0 || string(m.Content) == "null":
	case m.Content[0] == '"':
		if err := json.Unmarshal(m.Content, &msg.Text); err != nil {
			return jsonError(err)
		}
	case m.Content[0] == '[':
		if err := json.Unmarshal(m.Content, &parts); err != nil {
			return badRequest(at(".content"), "invalid_type", "%s is not a list of content parts: %v", at(".content"), err)
		}
	default:
		return badRequest(at(".content"), "invalid_type", "%s is neither a string nor a list", at(".content"))
	}
	var text strings.Builder
	for k, p := range parts {
		where := at(".content[%d]", k)
		switch {
		case p.Type == "text":
			text.WriteString(p.Text)
		case p.Type == "image_url" && p.ImageURL != nil:
			if !s.engine.spec.Images {
				return badRequest(where, "images_unsupported", "%s: this model reads no images", where)
			}
			if len(*pictures) >= s.opt.MaxImages {
				return badRequest(where, "too_many_images", "more than %d images", s.opt.MaxImages)
			}
			im, err := s.pictures.prepare(ctx, p.ImageURL.URL)
			if err != nil {
				var api *apiError
				if errors.As(err, &api) || ctx.Err() != nil {
					return err
				}
				return badRequest(where+".image_url", "invalid_image", "%s: %s", where, reason(err))
			}
			*pictures = append(*pictures, im)
			msg.Images = append(msg.Images, chat.Image{Grid: im.grid, Merge: int32(s.engine.spec.Merge)})
			msg.At = append(msg.At, text.Len())
		case p.Type == "image_url":
			return badRequest(where+".image_url", "missing", "%s has no image_url", where)
		default:
			return badRequest(where+".type", "unsupported", "%s is of type %q, only text and image_url are read", where, p.Type)
		}
	}
	if parts != nil {
		msg.Text = text.String()
	}
	for k, call := range m.ToolCalls {
		if m.Role != chat.Assistant {
			return badRequest(at(".tool_calls"), "unsupported", "%s: only an assistant calls tools", at(".tool_calls"))
		}
		if k > 0 || msg.Text != "" {
			msg.Text += "\n"
		}
		s, err := chat.CallText(call.Function.Name, call.Function.Arguments)
		if err != nil {
			return badRequest(at(".tool_calls[%d]", k), "invalid_json", "%s: %s", at(".tool_calls[%d]", k), reason(err))
		}
		msg.Text += s
	}
	return nil
}

// limits of the turn that the request asks for.
func (s *Server) limits(q *chatRequest, p *prompt) (limits, error) {
	room := s.engine.context - len(p.ids)
	l := limits{tokens: q.maxNew(), include: q.IncludeStop, end: s.end}
	if asked := q.MaxTokens != nil || q.MaxNew != nil; !asked {
		l.tokens = room
	} else if l.tokens > room {
		return l, tooLong(fmt.Sprintf("%d in the messages and max_tokens make %%d", len(p.ids)), len(p.ids)+l.tokens, s.engine.context)
	}
	for _, w := range q.Stop {
		l.stops = append(l.stops, []byte(w))
	}
	return l, nil
}
