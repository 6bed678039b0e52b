package scripted

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
)

// Options of a Server.
type Options struct {
	Script    Script
	Questions []corpus.Question // where the question of a conversation is looked up; may be empty
	Model     string            // name of the one model; "" = "scripted"
	Policy    string            // identity that answers carry; "" = none, clients then use the URL
	Faults    []Fault           // the first that applies to a request is served

	// Tokens makes the server speak the token-id extension with a toy tokenizer:
	// one token a byte, see toy.go. Without it four bytes count as one token.
	Tokens bool
	// Context is how many tokens prompt and turn may have together; 0 = no limit.
	Context int

	Seen    func(Conversation)              // called for every chat request, concurrently; may be nil
	Corrupt func(n int, resp *ChatResponse) // spoils the n-th good response; for tests
}

// Server is a scripted chat server.
type Server struct {
	opt    Options
	find   *finder
	faults faults
	http   *http.Server
}

// New makes a server; use Handler, or Start and Close.
func New(opt Options) *Server {
	if opt.Model == "" {
		opt.Model = "scripted"
	}
	return &Server{opt: opt, find: newFinder(opt.Questions), faults: faults{list: opt.Faults}}
}

// Start listens on addr ("127.0.0.1:0" for a free port) and serves until Close.
func (s *Server) Start(addr string) (url string, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fail.Wrap(fail.Usage, "listen", addr, err)
	}
	s.http = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go s.http.Serve(l)
	return "http://" + l.Addr().String(), nil
}

// Close stops the server; requests in flight may end until ctx does.
func (s *Server) Close(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

// Requests is how many chat requests came.
func (s *Server) Requests() int {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return s.faults.n
}

// Handler serves /v1/chat/completions, /v1/models and /health.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, map[string]string{"status": "ok"}) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, map[string]any{"object": "list", "data": []map[string]string{{"id": s.opt.Model, "object": "model", "owned_by": "searchloop"}}})
	})
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	return mux
}

// plainBytes is how many bytes count as one token where no ids are given, about
// as many as a real tokenizer takes.
const plainBytes = 4

// maxRequest bounds a request's body: pictures make it large, nothing makes it larger.
const maxRequest = 64 << 20

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	var in chatRequest
	// Read to the end: only then does net/http notice that a client went away.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "invalid_request_error")
		return
	}
	conv, err := in.conversation(s.find)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "invalid_request_error")
		return
	}
	if s.opt.Seen != nil {
		s.opt.Seen(conv)
	}
	fault, faulty := s.faults.next()
	if in.Model != s.opt.Model {
		refuse(w, http.StatusNotFound, "no model is named "+in.Model, "model_not_found")
		return
	}
	resp, refusal := s.reply(in, conv)
	full, _ := json.Marshal(resp)
	if faulty && fault.serve(w, r, full) {
		return
	}
	if refusal != nil {
		refuse(w, refusal.status, refusal.message, refusal.code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(full)
}

type refusal struct {
	status        int
	message, code string
}

// reply asks the script and puts its turn into the API's form.
func (s *Server) reply(in chatRequest, conv Conversation) (*ChatResponse, *refusal) {
	text, err := s.opt.Script.Reply(conv)
	if err != nil {
		return nil, &refusal{http.StatusInternalServerError, err.Error(), "script"}
	}
	prompt, images := toyPrompt(in)
	ids := toyTurn(text)
	i, stop := firstStop(text, in.Stop)
	if i >= 0 {
		// The end mark was never sampled; the stop text was, whether it is told or not.
		ids = toyBytes(text[:i+len(stop)])
		if text = text[:i]; in.KeepStop {
			text += stop
		}
	}
	bytes := 1 // of a token
	if !s.opt.Tokens {
		bytes = plainBytes
	}
	count := func(ids []int32) int { return (len(ids) + bytes - 1) / bytes }
	limit := in.MaxTokens
	if s.opt.Context > 0 {
		room := s.opt.Context - count(prompt)
		if room <= 0 {
			return nil, &refusal{http.StatusBadRequest, "the prompt is longer than the context", "context_length_exceeded"}
		}
		if limit == 0 || room < limit {
			limit = room
		}
	}
	finish := "stop"
	if limit > 0 && count(ids) > limit {
		ids, finish, stop = ids[:limit*bytes], "length", ""
		text = string(toyText(ids))
	}
	resp := &ChatResponse{Object: "chat.completion", Model: s.opt.Model, Choices: []Choice{{Message: ReplyMessage{Role: "assistant", Content: text}, Finish: finish, Stop: stop}}}
	resp.Policy = s.opt.Policy
	resp.Usage = Usage{count(prompt), count(ids), count(prompt) + count(ids)}
	if s.opt.Tokens && in.ReturnTokenIDs {
		resp.PromptIDs, resp.PromptImages = prompt, images
		resp.Choices[0].TokenIDs = ids
		resp.Choices[0].Logprobs = toyLogprobs(ids)
		resp.Policy, resp.LogprobsMode = "toy", "processed"
	}
	if s.opt.Corrupt != nil {
		s.opt.Corrupt(s.Requests(), resp)
	}
	return resp, nil
}

func firstStop(text string, stop []string) (at int, which string) {
	at = -1
	for _, x := range stop {
		if i := strings.Index(text, x); x != "" && i >= 0 && (at < 0 || i < at) {
			at, which = i, x
		}
	}
	return at, which
}

// conversation reads the messages for a script.
func (in chatRequest) conversation(f *finder) (Conversation, error) {
	c := Conversation{Seed: in.Seed, Of: len(f.ordered)}
	for _, m := range in.Messages {
		msg := Message{Role: m.Role}
		text, pictures, err := m.content()
		if err != nil {
			return c, err
		}
		msg.Text = text
		if m.Role == "assistant" {
			n := 0
			for _, g := range m.Segments {
				if len(g.TokenIDs) > 0 {
					n++
				}
			}
			c.Turn += max(n, 1)
		}
		for _, p := range pictures {
			sum := sha256.Sum256(p)
			msg.Images = append(msg.Images, hex.EncodeToString(sum[:]))
		}
		c.Messages = append(c.Messages, msg)
	}
	for _, m := range c.Messages {
		if m.Role == "user" {
			c.Question, c.Rank = f.find(m)
			break
		}
	}
	return c, nil
}

// content reads a message's text and pictures: a string, null, or typed parts.
func (m requestMessage) content() (text string, pictures [][]byte, err error) {
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil, nil
	}
	if json.Unmarshal(m.Content, &text) == nil {
		return text, nil, nil
	}
	var parts []struct {
		Type, Text string
		ImageURL   struct{ URL string } `json:"image_url"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", nil, errors.New("content is neither a text nor a list of parts")
	}
	for _, p := range parts {
		if p.Type == "text" {
			text += p.Text
			continue
		}
		_, data, ok := strings.Cut(p.ImageURL.URL, ";base64,")
		b, err := base64.StdEncoding.DecodeString(data)
		if !ok || err != nil {
			return "", nil, errors.New("image_url is no base64 data URL")
		}
		pictures = append(pictures, b)
	}
	return text, pictures, nil
}

func refuse(w http.ResponseWriter, status int, message, code string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": message, "type": code, "code": code}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
