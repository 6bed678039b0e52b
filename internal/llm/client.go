package llm

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/plainhttp"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/internal/tape"
)

// Options of a Client.
type Options struct {
	Name    string        // what it is to the job, for messages: "policy server", "judge"
	URL     string        // http://host:port with or without /v1
	AsIs    bool          // no /v1 is added to the URL
	Model   string        // "": the only model that the server has
	Key     secret.Value  // sent as a bearer token
	KeyName string        // the environment variable of Key, for hints
	Timeout time.Duration // one HTTP call: 5 min
	Conns   int           // calls at once: 64; idle connections are kept for so many
	Retry   retry.Options // Name and Log are set here
	Log     *slog.Logger
	Tape    *tape.Tape // what is asked and answered is recorded or replayed; nil: neither

	API       string // how Open's servers are talked to: APIAuto, APISGLang; "" and APIOpenAI: chat completions
	Tokenizer string // folder of the model's tokenizer and processor; "": the one that a server names, if it is here
}

// Client talks to one model of one server. Safe for concurrent use.
type Client struct {
	opt   Options
	shown string // URL without user info
	base  string // URL
	conns *plainhttp.Transport
	http  *http.Client // by conns
	posts sync.Map     // of *plainhttp.Post by address
	line  *retry.Line
	plain atomic.Bool // the server refuses our fields: do without
	loose atomic.Bool // the server refuses schemas: do without

	floats atomic.Bool // the server gives no vectors in base64: ask for numbers

	root   string     // where the server says its model lies
	tokens *Tokenizer // nil: the server writes the prompts and says what is in them
	native bool       // SGLang's own API
}

// New makes a client. It does not connect; call Probe before the work starts.
func New(opt Options) (*Client, error) {
	u, err := url.Parse(opt.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fail.New(fail.Usage, "connect to the "+opt.Name, secret.Scrub(opt.URL), "not an http URL")
	}
	if pass, ok := u.User.Password(); ok {
		secret.New(pass)
	}
	if strings.Trim(u.Path, "/") == "" && !opt.AsIs {
		u.Path = "/v1"
	}
	if opt.Timeout <= 0 {
		opt.Timeout = 5 * time.Minute
	}
	if opt.Conns <= 0 {
		opt.Conns = 64
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.Retry.Name, opt.Retry.Log = opt.Name, opt.Log
	shown := *u
	shown.User = nil
	c := &Client{opt: opt, shown: shown.String(), line: retry.New(opt.Retry)}
	c.base = strings.TrimRight(u.String(), "/")
	c.conns = plainhttp.New(opt.Conns)
	c.http = &http.Client{Transport: c.conns}
	return c, nil
}

// URL is the server's address without user info; Model is the model asked.
func (c *Client) URL() string { return c.shown }

// Model is the model's name: as given, or as Probe found it.
func (c *Client) Model() string { return c.opt.Model }

// Probe asks the server for its models before the work starts: a wrong address,
// key or model ends the job here. When no model was given and the server has
// exactly one, that one is taken.
func (c *Client) Probe(ctx context.Context) error {
	model, err := taped(c, "ask for models", modelsKind, map[string]string{"to": c.opt.Name, "model": c.opt.Model}, func() (string, error) {
		err := c.probe(ctx)
		return c.opt.Model, err
	})
	if err == nil {
		c.opt.Model = model
	}
	return err
}

func (c *Client) probe(ctx context.Context) error {
	var list struct {
		Models []struct{ ID, Root string } `json:"data"`
	}
	f := c.ask(ctx, &exchange{}, http.MethodGet, c.base+"/models", nil, func(x *exchange) *retry.Fault {
		if f := notReply(x); f != nil && f.Class != NoChoices {
			return f
		}
		if err := json.Unmarshal(x.body, &list); err != nil {
			return &retry.Fault{Verdict: retry.Again, Class: NotJSON, Err: errors.New("no list of models")}
		}
		return nil
	})
	if f != nil && f.Class == NotFound && c.opt.Model != "" {
		// Some servers have no list. The first turn will tell; the line must not stay stopped.
		c.line = retry.New(c.opt.Retry)
		c.opt.Log.Warn(c.opt.Name + " lists no models; taking the given one on trust")
		return nil
	}
	if f != nil {
		return c.failure("ask for models", c.shown, f)
	}
	var names []string
	for _, m := range list.Models {
		names = append(names, m.ID)
		if m.ID == c.opt.Model || len(list.Models) == 1 {
			c.root = m.Root
		}
	}
	switch {
	case c.opt.Model == "" && len(names) == 1:
		c.opt.Model = names[0]
	case c.opt.Model == "":
		return fail.WithHint(fail.New(fail.Usage, "ask for models", c.shown, "the %s has %d models and none was chosen", c.opt.Name, len(names)),
			"models: "+strings.Join(names, ", "))
	case !slices.Contains(names, c.opt.Model):
		return fail.WithHint(fail.New(fail.Service, "ask for models", c.shown, "the %s has no model %q", c.opt.Name, c.opt.Model),
			"models: "+strings.Join(names, ", "))
	}
	return nil
}

// Chat asks for one turn. The error is a *fail.Error of kind Service whose cause
// is a *retry.Fault: with verdict Stop the job must end, with Again or Never this
// conversation alone has failed, with Caller ctx ended.
func (c *Client) Chat(ctx context.Context, r Request) (*Reply, error) {
	if c.opt.Tape == nil {
		return c.chat(ctx, r)
	}
	return taped(c, "ask for a turn", chatKind, c.asked(r), func() (*Reply, error) { return c.chat(ctx, r) })
}

func (c *Client) chat(ctx context.Context, r Request) (*Reply, error) {
	if c.native {
		return c.generate(ctx, r)
	}
	for {
		x := &exchange{request: r, extras: r.TokenIDs && !c.plain.Load(), keep: !c.plain.Load(), schema: !c.loose.Load()}
		body, err := x.text(c.opt.Model)
		if err != nil {
			return nil, fail.Wrap(fail.Bug, "write request", c.shown, err)
		}
		var reply *Reply
		f := c.ask(ctx, x, http.MethodPost, c.base+"/chat/completions", body, func(x *exchange) (f *retry.Fault) {
			if reply, f = readReply(x); f == nil && len(reply.PromptIDs) > 0 && reply.Images == nil && c.tokens != nil {
				if reply.Images, err = c.tokens.place(r, reply.PromptIDs); err != nil {
					f = &retry.Fault{Verdict: retry.Never, Class: "prompt", Err: err}
				}
			}
			return f
		})
		if x.extras && unknownField(f, "token_ids", "segments") || x.keep && len(r.Stop) > 0 && unknownField(f, "include_stop_str_in_output", "no_stop_trim") {
			c.opt.Log.Warn(c.opt.Name+" refuses token ids: rows will have none", "said", f.Err)
			c.plain.Store(true)
			continue
		}
		if x.schema && len(r.Schema) > 0 && unknownField(f, "response_format", "json_schema", "guided", "schema") {
			c.opt.Log.Warn(c.opt.Name+" takes no schema: its replies are read as text", "said", f.Err)
			c.loose.Store(true)
			continue
		}
		if f != nil {
			return nil, c.failure("ask for a turn", c.shown, f)
		}
		reply.Attempts = x.attempts
		return reply, nil
	}
}

// failure is the error of a call that failed for good; path is the address, "" for
// that of several servers.
func (c *Client) failure(op, path string, f *retry.Fault) error {
	e := &fail.Error{Kind: fail.Service, Op: op, Path: path, Err: f}
	switch f.Class {
	case Unauthorised:
		e.Hint = "check the key in " + c.opt.KeyName
		if c.opt.KeyName == "" {
			e.Hint = "the server wants a key"
		}
	case NotFound:
		e.Hint = "is the model's name right (" + c.opt.Model + "), and does the address end in /v1?"
	case "gone":
		e.Hint = "start the server and run again: finished work is kept"
	case "cancelled":
		e.Kind = fail.Interrupted
	}
	return e
}

// FaultOf is the classified failure inside err, nil when there is none.
func FaultOf(err error) *retry.Fault {
	if err == nil {
		return nil
	}
	var f *retry.Fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}
