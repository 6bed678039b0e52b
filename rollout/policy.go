package rollout

import (
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

// openPolicy connects to the policy's server; a policy that is a folder is served
// on a free loopback port of this process, and talked to in the same way.
func openPolicy(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options) (c *llm.Client, close func(), err error) {
	url, close := o.PolicyURL, func() {}
	if o.Policy != "" {
		if url, close, err = servePolicy(r, o.Policy, max(1, rec.Rollout.Concurrency)); err != nil {
			return nil, nil, err
		}
	}
	if o.Script != "" {
		if url, close, err = scripted.Local(o.Script, o.Questions); err != nil {
			return nil, nil, err
		}
	}
	c, err = llm.New(llm.Options{
		Name: "policy server", URL: url, Model: o.PolicyModel, Key: secret.FromEnv(KeyName), KeyName: KeyName,
		Timeout: time.Duration(rec.Rollout.TimeoutSec) * time.Second, Conns: max(1, rec.Rollout.Concurrency), Log: r.Log, Retry: patience,
	})
	if err == nil {
		err = c.Probe(ctx)
	}
	if err != nil {
		close()
		return nil, nil, fail.Wrap(fail.Service, "open policy", "", err)
	}
	return c, close, nil
}
