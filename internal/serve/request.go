package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"searchloop/internal/chat"
)

// chatRequest is the body of POST /v1/chat/completions: OpenAI's, with the
// extensions named in the package comment. Fields that we do not know are ignored,
// as all servers do; fields that we know and cannot honour are refused.
type chatRequest struct {
	Model       string          `json:"model"`
	Messages    []chatMessage   `json:"messages"`
	Tools       json.RawMessage `json:"tools"`
	ToolChoice  json.RawMessage `json:"tool_choice"`
	MaxTokens   *int            `json:"max_tokens"`
	MaxNew      *int            `json:"max_completion_tokens"`
	Temperature *float64        `json:"temperature"`
	TopP        *float64        `json:"top_p"`
	TopK        *int            `json:"top_k"`
	Seed        *int64          `json:"seed"`
	Stop        stopList        `json:"stop"`
	N           *int            `json:"n"`
	Stream      bool            `json:"stream"`
	StreamOpt   *struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
	Logprobs    bool               `json:"logprobs"`
	TopLogprobs int                `json:"top_logprobs"`
	TokenIDs    bool               `json:"return_token_ids"`
	IncludeStop bool               `json:"include_stop_str_in_output"`
	Presence    *float64           `json:"presence_penalty"`
	Frequency   *float64           `json:"frequency_penalty"`
	Repetition  *float64           `json:"repetition_penalty"`
	MinP        *float64           `json:"min_p"`
	LogitBias   map[string]float64 `json:"logit_bias"`
	// The names of vLLM and SGLang for going on with a turn that has begun.
	Continue *bool `json:"continue_final_message"`
	Begin    *bool `json:"add_generation_prompt"`
	Format   *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	TokenIDs []int32   `json:"token_ids"`
	Segments []segment `json:"segments"`
}

// segment is a piece of an assistant's turn: ids that were sampled, or text that
// the environment put there. A message with segments is these and nothing else;
// its content is for servers that do not know them.
type segment struct {
	TokenIDs []int32 `json:"token_ids"`
	Text     string  `json:"text"`
}

// chatPart is an element of a content list.
type chatPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL *struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// stopList reads a string, a list or null.
type stopList []string

// UnmarshalJSON reads the list.
func (s *stopList) UnmarshalJSON(b []byte) error {
	var one string
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &one); err != nil {
			return err
		}
		*s = stopList{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// Bounds on what a request may ask for.
const (
	maxStops    = 16
	maxStopLen  = 256
	maxTop      = 20
	maxMessages = 4096
)

// readRequest reads and checks a request; its messages are not looked into.
func (s *Server) readRequest(w http.ResponseWriter, r *http.Request) (*chatRequest, error) {
	// Not the server's ReadTimeout: that would also end the turn.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(readTimeout))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.opt.MaxBody))
	_ = rc.SetReadDeadline(time.Time{})
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, kind: "invalid_request_error", code: "request_too_large",
			message: fmt.Sprintf("the request is larger than %d bytes", s.opt.MaxBody)}
	case err != nil:
		return nil, badRequest("", "unreadable", "the request ended too early: %v", err)
	}
	q := new(chatRequest)
	if err := json.Unmarshal(data, q); err != nil {
		return nil, jsonError(err)
	}
	return q, q.check(s.opt.Name, s.policy)
}

// jsonError says what is wrong with a body, and where.
func jsonError(err error) *apiError {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return badRequest("", "invalid_type", "the request is a JSON %s, not an object", wrong.Value)
	case errors.As(err, &wrong):
		return badRequest(wrong.Field, "invalid_type", "%s is a %s, which it cannot be", wrong.Field, wrong.Value)
	case errors.As(err, &syntax):
		return badRequest("", "invalid_json", "the request is not JSON: %v at byte %d", err, syntax.Offset)
	}
	return badRequest("", "invalid_json", "the request is not JSON: %v", err)
}

func (q *chatRequest) check(name, policy string) error {
	switch q.Model {
	case "", "default", "policy", name, policy:
	default:
		return &apiError{status: http.StatusNotFound, kind: "invalid_request_error", code: "model_not_found", param: "model",
			message: fmt.Sprintf("the model %q does not exist; this server has %q", q.Model, name)}
	}
	outside := func(v *float64, lo, hi float64) bool { return v != nil && !(*v >= lo && *v <= hi) }
	on := func(v *float64, neutral float64) bool { return v != nil && *v != neutral }
	switch {
	case len(q.Messages) == 0:
		return badRequest("messages", "missing", "messages is empty or missing")
	case len(q.Messages) > maxMessages:
		return badRequest("messages", "too_many", "%d messages, at most %d", len(q.Messages), maxMessages)
	case q.goesOn() && q.Messages[len(q.Messages)-1].Role != chat.Assistant:
		return badRequest("continue_final_message", "contradiction", "the final message is not an assistant's: there is no turn to go on with")
	case q.goesOn() && q.Begin != nil && *q.Begin:
		return badRequest("add_generation_prompt", "contradiction", "a turn is either begun or gone on with")
	case q.N != nil && *q.N != 1:
		return badRequest("n", "unsupported", "n is %d; only one choice is given, ask several times", *q.N)
	case outside(q.Temperature, 0, 100):
		return badRequest("temperature", "out_of_range", "temperature %g is not between 0 and 100", *q.Temperature)
	case q.TopP != nil && !(*q.TopP > 0 && *q.TopP <= 1):
		return badRequest("top_p", "out_of_range", "top_p %g is not above 0 and at most 1", *q.TopP)
	case q.TopK != nil && *q.TopK < -1:
		return badRequest("top_k", "out_of_range", "top_k %d is negative", *q.TopK)
	case q.MaxTokens != nil && *q.MaxTokens < 1, q.MaxNew != nil && *q.MaxNew < 1:
		return badRequest("max_tokens", "out_of_range", "max_tokens must be at least 1")
	case q.TopLogprobs < 0 || q.TopLogprobs > maxTop:
		return badRequest("top_logprobs", "out_of_range", "top_logprobs %d is not between 0 and %d", q.TopLogprobs, maxTop)
	case q.TopLogprobs > 0 && !q.Logprobs:
		return badRequest("top_logprobs", "contradiction", "top_logprobs needs logprobs")
	case len(q.Stop) > maxStops:
		return badRequest("stop", "too_many", "%d stop strings, at most %d", len(q.Stop), maxStops)
	case on(q.Presence, 0), on(q.Frequency, 0), on(q.Repetition, 1), on(q.MinP, 0), len(q.LogitBias) > 0:
		return badRequest("", "unsupported", "penalties, min_p and logit_bias are not supported")
	case q.Format != nil && q.Format.Type != "" && q.Format.Type != "text":
		return badRequest("response_format", "unsupported", "response_format %q is not supported, only text", q.Format.Type)
	}
	for _, w := range q.Stop {
		if w == "" || len(w) > maxStopLen {
			return badRequest("stop", "out_of_range", "a stop string has %d bytes; 1 to %d are allowed", len(w), maxStopLen)
		}
	}
	if c := strings.Trim(string(bytes.TrimSpace(q.ToolChoice)), `"`); c == "none" {
		q.Tools = nil
	} else if c != "" && c != "auto" && c != "null" {
		return badRequest("tool_choice", "unsupported", "tool_choice %s is not supported, only none and auto", c)
	}
	return nil
}

// goesOn says whether the turn asked for is the rest of the final message's.
func (q *chatRequest) goesOn() bool { return q.Continue != nil && *q.Continue }

// sampling is the request's way to draw; without a seed it gets one of its own.
func (q *chatRequest) sampling() sampling {
	s := sampling{temperature: 1, topP: 1}
	if q.Temperature != nil {
		s.temperature = float32(*q.Temperature)
		if s.temperature < 1e-4 { // its logits would not be finite
			s.temperature = 0
		}
	}
	if q.TopP != nil {
		s.topP = float32(*q.TopP)
	}
	if q.TopK != nil {
		s.topK = max(*q.TopK, 0)
	}
	if q.Seed != nil {
		s.seed = uint64(*q.Seed)
	} else {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		s.seed = binary.LittleEndian.Uint64(b[:])
	}
	return s
}

// maxNew is the greatest number of tokens asked for.
func (q *chatRequest) maxNew() int {
	n := math.MaxInt
	if q.MaxTokens != nil {
		n = *q.MaxTokens
	}
	if q.MaxNew != nil {
		n = min(n, *q.MaxNew)
	}
	return n
}
