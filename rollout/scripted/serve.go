package scripted

import (
	"context"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// ServeOptions say what Serve serves.
type ServeOptions struct {
	Script    string
	Questions string  // questions dataset; "" for scripts that need none
	Right     float64 // for the oracle
	Addr      string
	AddrFile  string // where the address is written once the server listens
	Model     string // "" = judge_model for the judge, scripted for others
	Faults    []string
}

// Serve serves a script until the job is asked to stop. That is its regular end,
// and no error.
func Serve(ctx context.Context, r *job.Run, o ServeOptions) error {
	opt := Options{Model: o.Model}
	if opt.Model == "" && o.Script == "judge" {
		opt.Model = "judge_model"
	}
	var err error
	if opt.Script, err = Lookup(o.Script, o.Right); err != nil {
		return err
	}
	for _, f := range o.Faults {
		fault, err := ParseFault(f)
		if err != nil {
			return err
		}
		opt.Faults = append(opt.Faults, fault)
	}
	if opt.Questions, err = known(o.Questions); err != nil {
		return err
	}
	s := New(opt)
	url, err := s.Start(o.Addr)
	if err != nil {
		return err
	}
	r.Log.Info("serving", "script", o.Script, "questions", len(opt.Questions), "at", url, "model", s.opt.Model)
	if err := job.Announce(o.AddrFile, url); err != nil {
		return err
	}
	select {
	case <-r.Stopping():
	case <-ctx.Done():
	}
	r.Log.Info("served", "requests", s.Requests())
	return fail.Wrap(fail.Service, "stop", url, s.Close(ctx))
}

// known reads a questions dataset for a server, without what it does not look at;
// "" gives none.
func known(dir string) (out []corpus.Question, err error) {
	if dir == "" {
		return nil, nil
	}
	m, err := manifest.Open(dir)
	if err == nil {
		err = m.Require(dir, corpus.Questions, corpus.QuestionsVersion)
	}
	if err != nil {
		return nil, err
	}
	for q, err := range table.ReadDataset[corpus.Question](dir) {
		if err != nil {
			return nil, err
		}
		q.Prompt, q.Images = nil, nil
		out = append(out, q)
	}
	return out, nil
}

// Local serves a script on a free loopback port of this process. It knows the
// questions of the dataset; an oracle answers all of them rightly. close ends it.
func Local(script, questions string) (url string, close func(), err error) {
	opt := Options{Model: script, Policy: "script:" + script}
	if opt.Script, err = Lookup(script, 1); err != nil {
		return "", nil, err
	}
	if opt.Questions, err = known(questions); err != nil {
		return "", nil, err
	}
	s := New(opt)
	if url, err = s.Start("127.0.0.1:0"); err != nil {
		return "", nil, err
	}
	return url, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		s.Close(ctx)
	}, nil
}
