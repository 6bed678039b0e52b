package rollout

import (
	"cmp"
	"context"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/rollout/scripted"
)

// KeyName is the environment variable of the policy server's key.
const KeyName = "POLICY_API_KEY"

// Environment variables of the keys of the models that tools ask.
const (
	ReaderKeyName = "READER_API_KEY"
	ModelKeyName  = "MODEL_SEARCH_API_KEY"
)

// patience is how failures of the policy server and of search servers are waited
// for: the defaults of package retry, which tests shorten.
var patience retry.Options

// openPolicy connects to the policy's servers; a policy that is a folder is served
// on a free loopback port of this process, and talked to in the same way. A replay
// needs no server.
func openPolicy(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options) (p *llm.Pool, close func(), err error) {
	urls, listed, err := llm.Addresses(o.PolicyURLs)
	stop := func() {}
	var url string
	switch {
	case err != nil:
	case len(urls) > 0:
	case o.tape.Replays():
		url = "http://replayed"
	case o.Policy != "":
		url, stop, err = servePolicy(r, o.Policy, max(1, rec.Rollout.Concurrency))
	case o.Script != "":
		url, stop, err = scripted.Local(o.Script, o.Questions)
	}
	if err != nil {
		return nil, nil, err
	}
	if url != "" {
		urls = []string{url}
	}
	p, err = llm.Open(ctx, llm.Options{
		Name: "policy server", Model: o.PolicyModel, Key: secret.FromEnv(KeyName), KeyName: KeyName,
		Timeout: time.Duration(rec.Rollout.TimeoutSec) * time.Second, Conns: max(1, rec.Rollout.Concurrency), Log: r.Log, Tape: o.tape,
		API: cmp.Or(o.PolicyAPI, llm.APIAuto), Tokenizer: o.Tokenizer,
	}, llm.PoolOptions{URLs: urls, PerServer: rec.Rollout.PerServer, Retry: patience, Moves: listed || o.Policy != "" && len(o.PolicyURLs) > 0})
	if err != nil {
		stop()
		return nil, nil, fail.Wrap(fail.Service, "open policy", "", err)
	}
	return p, func() { p.Close(); stop() }, nil
}
