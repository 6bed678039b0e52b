// Command serve answers chat requests with a policy: an OpenAI-compatible server.
package main

import (
	"context"

	"searchloop/internal/job"
	"searchloop/internal/serve"
)

type command struct {
	job.Serving
	Policy    string `required:"" placeholder:"DIR" help:"Folder of the model, in the Hugging Face layout."`
	Addr      string `default:"127.0.0.1:8000" help:"Address to listen on; port 0 takes a free one. The key in SERVE_API_KEY, if set, is asked of every request."`
	AddrFile  string `placeholder:"FILE" help:"Write the server's address here once it answers."`
	Name      string `help:"Name of the model; by default the folder's."`
	MaxActive int    `default:"64" help:"Turns answered at once."`
	MaxQueue  int    `default:"1024" help:"Turns that may wait; more are refused with 429."`
	Context   int    `placeholder:"N" help:"Tokens of a conversation; by default the model's limit."`
	KVTokens  int    `name:"kv-tokens" placeholder:"N" help:"Tokens in all caches; by default what 1 GiB holds."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return serve.Run(ctx, r, serve.RunOptions{Policy: c.Policy, Addr: c.Addr, AddrFile: c.AddrFile,
		Server: serve.Options{Name: c.Name, MaxActive: c.MaxActive, MaxQueue: c.MaxQueue, Context: c.Context, KVTokens: c.KVTokens}})
}

func main() {
	job.Main("serve", "Serve a policy: POST /v1/chat/completions, GET /v1/models, /health, /metrics.", &command{})
}
