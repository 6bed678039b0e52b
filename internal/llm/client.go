package llm

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// Options of a Client.
type Options struct {
	Name    string        // what it is to the job, for messages: "policy server", "judge"
	URL     string        // http://host:port with or without /v1
	Model   string        // "": the only model that the server has
	Key     secret.Value  // sent as a bearer token
	KeyName string        // the environment variable of Key, for hints
	Timeout time.Duration // one HTTP call: 5 min
	Conns   int           // calls at once: 64; idle connections are kept for so many
	Retry   retry.Options // Name and Log are set here
	Log     *slog.Logger
}

// Client talks to one model of one server. Safe for concurrent use.
type Client struct {
	opt   Options
	shown string // URL without user info
	base  string // URL
	http  *http.Client
	api   *openai.Client
	line  *retry.Line
	plain atomic.Bool // the server refuses our fields: do without
	loose atomic.Bool // the server refuses schemas: do without
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
	if strings.Trim(u.Path, "/") == "" {
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
	conf := openai.DefaultConfig(opt.Key.Reveal())
	conf.BaseURL = strings.TrimRight(u.String(), "/")
	c.base = conf.BaseURL
	c.http = &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConns:        opt.Conns,
		MaxIdleConnsPerHost: opt.Conns,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}}
	conf.HTTPClient = wire{c.http}
	c.api = openai.NewClientWithConfig(conf)
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
	var list openai.ModelsList
	err := c.call(ctx, "ask for models", &exchange{}, func(ctx context.Context) (err error) {
		list, err = c.api.ListModels(ctx)
		return err
	}, func(x *exchange) *retry.Fault { return badList(x) })
	if f := FaultOf(err); f != nil && f.Class == NotFound && c.opt.Model != "" {
		// Some servers have no list. The first turn will tell; the line must not stay stopped.
		c.line = retry.New(c.opt.Retry)
		c.opt.Log.Warn(c.opt.Name + " lists no models; taking the given one on trust")
		return nil
	}
	if err != nil {
		return err
	}
	var names []string
	for _, m := range list.Models {
		names = append(names, m.ID)
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

func badList(x *exchange) *retry.Fault {
	if f := notReply(x); f != nil && f.Class != NoChoices {
		return f
	}
	return nil
}

// Chat asks for one turn. The error is a *fail.Error of kind Service whose cause
// is a *retry.Fault: with verdict Stop the job must end, with Again or Never this
// conversation alone has failed, with Caller ctx ended.
func (c *Client) Chat(ctx context.Context, r Request) (*Reply, error) {
	for {
		x := &exchange{request: r, extras: r.TokenIDs && !c.plain.Load(), keep: !c.plain.Load(), schema: !c.loose.Load()}
		var reply *Reply
		attempts := 0
		err := c.call(ctx, "ask for a turn", x, func(ctx context.Context) error {
			attempts++
			_, err := c.api.CreateChatCompletion(ctx, r.openaiRequest(c.opt.Model))
			return err
		}, func(x *exchange) (f *retry.Fault) {
			if f = notReply(x); f == nil {
				if reply, f = readReply(x); f == nil {
					reply.Attempts = attempts
				}
			}
			return f
		})
		f := FaultOf(err)
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
		return reply, err
	}
}

// call makes one call through the line. read turns a response of status 200 into
// a fault or keeps its content.
func (c *Client) call(ctx context.Context, op string, x *exchange, send func(context.Context) error, read func(*exchange) *retry.Fault) error {
	first := *x
	f := c.line.Do(ctx, func(ctx context.Context) *retry.Fault {
		*x = first
		timed, cancel := context.WithTimeout(ctx, c.opt.Timeout)
		defer cancel()
		err := send(withExchange(timed, x))
		switch {
		case err != nil && x.err == nil && x.status == 0:
			// The request never left: our own mistake, not the server's.
			return &retry.Fault{Verdict: retry.Never, Class: "request", Err: err}
		case x.err != nil || x.status >= 300:
			return x.fault(ctx)
		}
		return read(x)
	})
	if f == nil {
		return nil
	}
	e := &fail.Error{Kind: fail.Service, Op: op, Path: c.shown, Err: f}
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
	var f *retry.Fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}
