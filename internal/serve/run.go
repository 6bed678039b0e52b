package serve

import (
	"context"
	"fmt"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/secret"
)

// KeyName is the environment variable of the key that requests must bear.
const KeyName = "SERVE_API_KEY"

// RunOptions are the arguments of Run.
type RunOptions struct {
	Policy, Addr string
	AddrFile     string // where the address is written once it answers; may be ""
	Server       Options
}

// Run serves a policy until the job is told to stop: it prints the API's address
// once it answers, and lets requests in flight end when it stops.
func Run(ctx context.Context, r *job.Run, o RunOptions) error {
	o.Server.Log, o.Server.Key = r.Log, secret.FromEnv(KeyName)
	s, err := New(o.Policy, o.Server)
	if err != nil {
		return err
	}
	url, err := s.Start(o.Addr)
	if err != nil {
		return err
	}
	r.Log.Info("serving", "url", url, "model", s.Name(), "policy", s.Policy(), "context", s.engine.context, "active", s.opt.MaxActive, "cache_tokens", s.opt.KVTokens)
	if _, err := fmt.Fprintln(r.Out, url); err != nil {
		return fail.Wrap(fail.Disk, "print address", "stdout", err)
	}
	if err := job.Announce(o.AddrFile, url); err != nil {
		return err
	}
	select {
	case <-r.Stopping():
	case <-ctx.Done():
	}
	queued, running := s.engine.load()
	r.Log.Info("stopping", "in_flight", queued+running)
	return s.Close(ctx)
}
