package llm

import "searchloop/internal/jsonscan"

// scanReply reads a response of the usual form: in one pass, because a prompt's and a
// turn's ids and log-probs are many. ok is false for any other, which readReply reads
// with encoding/json.
func scanReply(body []byte) (out reply, ok bool) {
	s := jsonscan.New(body)
	var seen uint
	s.Object(func(name []byte) {
		switch string(name) {
		case "choices":
			s.Once(&seen, 0)
			s.Array(func() { out.Choices = append(out.Choices, scanChoice(s)) })
		case "prompt_token_ids":
			s.Once(&seen, 1)
			out.PromptIDs = s.Int32s()
		case "prompt_images":
			s.Once(&seen, 2)
			if !s.Null() {
				out.Images = scanImages(s)
			}
		case "policy":
			s.Once(&seen, 3)
			out.Policy = maybe(s)
		case "logprobs_mode":
			s.Once(&seen, 4)
			out.Mode = maybe(s)
		case "usage":
			s.Once(&seen, 5)
			if !s.Null() {
				scanUsage(s, &out)
			}
		case "error":
			if !s.Null() {
				s.Fail() // what it says is for others to read
			}
		default:
			s.Skip()
		}
	})
	return out, s.End()
}

func scanUsage(s *jsonscan.Scanner, out *reply) {
	var seen uint
	s.Object(func(name []byte) {
		switch string(name) {
		case "prompt_tokens":
			s.Once(&seen, 0)
			out.Usage.Prompt = count(s)
		case "completion_tokens":
			s.Once(&seen, 1)
			out.Usage.Completion = count(s)
		default:
			s.Skip()
		}
	})
}

func scanImages(s *jsonscan.Scanner) []PromptImage {
	out := []PromptImage{}
	s.Array(func() {
		var img PromptImage
		var seen uint
		s.Object(func(name []byte) {
			switch string(name) {
			case "grid":
				s.Once(&seen, 0)
				if g := s.Int32s(); len(g) == len(img.Grid) {
					img.Grid = [3]int32(g)
				} else {
					s.Fail()
				}
			case "offset":
				s.Once(&seen, 1)
				img.Offset = s.Int32()
			default:
				s.Skip()
			}
		})
		out = append(out, img)
	})
	return out
}

func scanChoice(s *jsonscan.Scanner) (c choice) {
	var seen uint
	s.Object(func(name []byte) {
		switch string(name) {
		case "message":
			s.Once(&seen, 0)
			scanMessage(s, &c)
		case "finish_reason":
			s.Once(&seen, 1)
			c.Finish = maybe(s)
		case "token_ids":
			s.Once(&seen, 2)
			c.TokenIDs = s.Int32s()
		case "token_logprobs":
			s.Once(&seen, 3)
			c.Logprobs = s.Float32s()
		case "stop_reason":
			s.Once(&seen, 4)
			c.Stop = stop(s)
		case "matched_stop":
			s.Once(&seen, 5)
			c.Matched = stop(s)
		case "logprobs":
			s.Once(&seen, 6)
			if !s.Null() {
				scanLogprobs(s, &c)
			}
		default:
			s.Skip()
		}
	})
	return c
}

func scanMessage(s *jsonscan.Scanner, c *choice) {
	var seen uint
	s.Object(func(name []byte) {
		switch string(name) {
		case "content":
			s.Once(&seen, 0)
			c.Message.said = maybe(s)
		case "reasoning_content":
			s.Once(&seen, 1)
			c.Message.Reasoning = maybe(s)
		case "reasoning":
			s.Once(&seen, 2)
			c.Message.Thought = s.Skip()
		case "tool_calls":
			if !s.Null() {
				s.Array(s.Fail) // any call is read by encoding/json
			}
		default:
			s.Skip()
		}
	})
}

func scanLogprobs(s *jsonscan.Scanner, c *choice) {
	c.Content = new(struct {
		Content []tokenLogprob `json:"content"`
	})
	var seen uint
	s.Object(func(name []byte) {
		if string(name) != "content" {
			s.Skip()
			return
		}
		if s.Once(&seen, 0); s.Null() {
			return
		}
		c.Content.Content = []tokenLogprob{}
		s.Array(func() {
			var p tokenLogprob
			var in uint
			s.Object(func(name []byte) {
				if string(name) != "logprob" {
					s.Skip()
					return
				}
				s.Once(&in, 0)
				p.Logprob = s.Float32()
			})
			c.Content.Content = append(c.Content.Content, p)
		})
	})
}

// maybe reads a text or null.
func maybe(s *jsonscan.Scanner) string {
	if s.Null() {
		return ""
	}
	return s.String()
}

// count reads a number of things or null.
func count(s *jsonscan.Scanner) int {
	if s.Null() {
		return 0
	}
	return int(s.Int32())
}

// stop reads why a turn stopped: a text or nothing. An end mark's id is as good as
// nothing, because nobody asks for it.
func stop(s *jsonscan.Scanner) any {
	raw := s.Skip()
	if len(raw) == 0 || raw[0] != '"' {
		return nil
	}
	in := jsonscan.New(raw)
	return in.String()
}
