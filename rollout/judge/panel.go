package judge

import (
	"context"
	"os"
	"strings"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/kv"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/internal/tape"
	"searchloop/rollout/trajectory"
)

// patience is how failures of the judges are waited for; tests shorten it.
var patience retry.Options

// panel is the judges of a run, mostly one.
type panel struct {
	judges []*asker
	kept   *kept
	check  bool // they are asked about exact matches too
}

// seat connects to the judges: those of the recipe's panel, or the one of o.URL.
func seat(ctx context.Context, r *job.Run, rec *recipe.Recipe, o Options) (p *panel, close func(), err error) {
	p = &panel{kept: &kept{log: r.Log}, check: rec.Judge.CheckExact}
	close = func() {}
	var images *corpus.ImageStore
	if rec.Judge.Images {
		if len(o.Images) == 0 {
			return nil, nil, fail.WithHint(fail.New(fail.Usage, "judge", "", "judge.images is set, and no folder of images is given"), "add --images DIR")
		}
		if images, err = corpus.OpenStore(o.Images...); err != nil {
			return nil, nil, err
		}
	}
	recorded, err := tape.Open(o.Record, o.Replay)
	if err != nil {
		return nil, nil, err
	}
	if rec.Judge.Votes > 1 && rec.Judge.Temperature == 0 {
		r.Log.Warn("all votes of a judge are the same at temperature 0: they only cost", "votes", rec.Judge.Votes, "remedy", "set judge.temperature, or judge.votes=1")
	}
	members := rec.Judge.Panel
	if len(members) == 0 {
		members = []recipe.Panelist{{Model: rec.Judge.Model, URL: o.URL}}
	}
	for _, m := range members {
		if strings.HasPrefix(m.URL, "@") {
			urls, _, err := llm.Addresses([]string{m.URL})
			if err != nil {
				return nil, nil, err
			}
			m.URL = urls[os.Getpid()%len(urls)] // the tasks of a stage spread over the servers
		}
		if m.KeyEnv == "" {
			m.KeyEnv = KeyName
		}
		c, err := llm.New(llm.Options{Name: "judge", URL: m.URL, Model: m.Model, Key: secret.FromEnv(m.KeyEnv), KeyName: m.KeyEnv,
			Timeout: time.Duration(rec.Judge.TimeoutSec) * time.Second, Conns: max(1, rec.Judge.Concurrency), Log: r.Log, Retry: patience, Tape: recorded})
		if err != nil {
			return nil, nil, err
		}
		if err := c.Probe(ctx); err != nil {
			return nil, nil, fail.Wrap(fail.Service, "open judge", "", err)
		}
		a, err := newAsker(rec.Judge, rec.Seed, c)
		if err != nil {
			return nil, nil, err
		}
		a.kept, a.images = p.kept, images
		p.judges = append(p.judges, a)
	}
	if o.Cache != "" && recorded == nil { // a record is whole by itself
		if p.kept.store, err = kv.Open(ctx, o.Cache); err != nil {
			return nil, nil, err
		}
		close = func() { _ = p.kept.store.Close() }
	}
	return p, close, nil
}

// names are the judges' models.
func (p *panel) names() string {
	var list []string
	for _, a := range p.judges {
		list = append(list, a.client.Model())
	}
	return strings.Join(list, ", ")
}

// decide asks all judges. The verdict is that of more than half of them; without
// such a majority it is failed when one failed, else unparsable. Of one judge it is
// that judge's. Errors are as of asker.ask.
func (p *panel) decide(ctx context.Context, t *trajectory.Row) (r ruling, opinions []trajectory.Opinion, err error) {
	count := map[string]int{}
	var replies []string
	for _, a := range p.judges {
		if r, err = a.ask(ctx, t); err != nil {
			return ruling{}, nil, err
		}
		count[r.Verdict]++
		opinions = append(opinions, trajectory.Opinion{Judge: a.client.Model(), Verdict: r.Verdict})
		replies = append(replies, a.client.Model()+": "+r.Reply)
	}
	if len(p.judges) == 1 {
		return r, opinions, nil
	}
	r = ruling{Verdict: trajectory.Unparsable, Reply: strings.Join(replies, votesApart)}
	switch n := len(p.judges); {
	case 2*count[trajectory.Correct] > n:
		r.Verdict = trajectory.Correct
	case 2*count[trajectory.Incorrect] > n:
		r.Verdict = trajectory.Incorrect
	case count[trajectory.JudgeError] > 0:
		r.Verdict = trajectory.JudgeError
	}
	return r, opinions, nil
}
