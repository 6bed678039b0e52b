package rollout

import (
	"context"
	"time"

	"searchloop/internal/job"
	"searchloop/internal/serve"
)

// servePolicy serves the policy in dir on a free loopback port. turns is how many
// are asked for at once.
func servePolicy(r *job.Run, dir string, turns int) (url string, close func(), err error) {
	s, err := serve.New(dir, serve.Options{MaxActive: turns, MaxQueue: 2 * turns, Log: r.Log})
	if err != nil {
		return "", nil, err
	}
	close = func() {
		// Whoever is still waiting for a turn has been cancelled already.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		s.Close(ctx)
	}
	if url, err = s.Start("127.0.0.1:0"); err != nil {
		close()
		return "", nil, err
	}
	r.Log.Info("serving the policy", "folder", dir, "digest", s.Policy()[:min(12, len(s.Policy()))], "at", url)
	return url, close, nil
}
