package scripted

import "encoding/json"

// The toy tokenizer, for the token-id extension without a model: one token a
// byte, and a few marks above. A prompt is, per message,
//
//	im_start role \n [vision_start image_pad×4 vision_end]… text im_end \n
//
// and im_start "assistant" \n at the end. An assistant message that carries
// token_ids is these ids, end mark included, instead of text and im_end; one that
// carries segments is these. A last message that is to be gone on with has neither
// im_end nor what follows. Every picture has the grid 1×4×4.
const (
	toyStart = 256 + iota
	toyEnd
	toyPad
	toyVisionStart
	toyVisionEnd
)

var toyGrid = [3]int32{1, 4, 4}

func toyBytes(s string) []int32 {
	out := make([]int32, len(s))
	for i := range len(s) {
		out[i] = int32(s[i])
	}
	return out
}

// toyTurn is the ids of a sampled turn.
func toyTurn(text string) []int32 { return append(toyBytes(text), toyEnd) }

// toyText is the text of sampled ids.
func toyText(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		if id < 256 {
			out = append(out, byte(id))
		}
	}
	return out
}

// toyLogprobs are made-up log-probs that depend on the id and its place.
func toyLogprobs(ids []int32) []float32 {
	out := make([]float32, len(ids))
	for i, id := range ids {
		out[i] = -float32(1+(int(id)+i)%7) / 8
	}
	return out
}

// toyPrompt renders the messages of a request.
func toyPrompt(in chatRequest) (ids []int32, images []PromptImage) {
	for i, m := range in.Messages {
		ids = append(ids, toyStart)
		ids = append(ids, toyBytes(m.Role+"\n")...)
		text, pictures, _ := m.content()
		for range pictures {
			ids = append(ids, toyVisionStart)
			images = append(images, PromptImage{Grid: toyGrid, Offset: int32(len(ids))})
			ids = append(ids, toyPad, toyPad, toyPad, toyPad, toyVisionEnd)
		}
		goesOn := in.Continue && i+1 == len(in.Messages)
		switch {
		case len(m.Segments) > 0:
			for _, g := range m.Segments {
				ids = append(append(ids, g.TokenIDs...), toyBytes(g.Text)...)
			}
			if !goesOn && ids[len(ids)-1] != toyEnd {
				ids = append(ids, toyEnd)
			}
		case m.Role == "assistant" && len(m.TokenIDs) > 0:
			ids = append(ids, m.TokenIDs...)
		case goesOn:
			ids = append(ids, toyBytes(text)...)
		default:
			ids = append(append(ids, toyBytes(text)...), toyEnd)
		}
		if goesOn {
			return ids, images
		}
		ids = append(ids, '\n')
	}
	return append(append(ids, toyStart), toyBytes("assistant\n")...), images
}

// The API's forms, with the extension.

type chatRequest struct {
	Model          string           `json:"model"`
	Messages       []requestMessage `json:"messages"`
	MaxTokens      int              `json:"max_tokens"`
	Seed           int64            `json:"seed"`
	Stop           []string         `json:"stop"`
	ReturnTokenIDs bool             `json:"return_token_ids"`
	Continue       bool             `json:"continue_final_message"`
	KeepStop       bool             `json:"include_stop_str_in_output"`
}

type requestMessage struct {
	Role     string          `json:"role"`
	Content  json.RawMessage `json:"content"`
	TokenIDs []int32         `json:"token_ids"`
	Segments []struct {
		TokenIDs []int32 `json:"token_ids"`
		Text     string  `json:"text"`
	} `json:"segments"`
}

// ChatResponse is a chat completion with the token-id extension.
type ChatResponse struct {
	Object       string        `json:"object"`
	Model        string        `json:"model"`
	Choices      []Choice      `json:"choices"`
	Usage        Usage         `json:"usage"`
	PromptIDs    []int32       `json:"prompt_token_ids,omitempty"`
	PromptImages []PromptImage `json:"prompt_images,omitempty"`
	Policy       string        `json:"policy,omitempty"`
	LogprobsMode string        `json:"logprobs_mode,omitempty"`
}

// Choice is the turn.
type Choice struct {
	Index    int          `json:"index"`
	Message  ReplyMessage `json:"message"`
	Finish   string       `json:"finish_reason"`
	Stop     string       `json:"stop_reason,omitempty"` // the stop text that ended the turn
	TokenIDs []int32      `json:"token_ids,omitempty"`
	Logprobs []float32    `json:"token_logprobs,omitempty"`
}

// ReplyMessage is the turn's text.
type ReplyMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// PromptImage is where an image stands in the prompt.
type PromptImage struct {
	Grid   [3]int32 `json:"grid"`
	Offset int32    `json:"offset"`
}

// Usage counts tokens.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}
