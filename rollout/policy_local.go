package rollout

import (
	"searchloop/internal/fail"
	"searchloop/internal/job"
)

func servePolicy(r *job.Run, dir string, concurrency int) (url string, close func(), err error) {
	return "", nil, fail.New(fail.Bug, "serve policy", dir, "no embedded server yet")
}
