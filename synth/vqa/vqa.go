// Package vqa makes questions about images that need a search: of every concept of
// a list an image and a page are found, a model writes a question with a short
// answer that the page holds, and what it wrote is checked by rules and by a second
// model (FVQA-auto, MMSearch-R1, section 3). Concepts go in; a questions dataset
// comes out, in which every row says how it was made, and a funnel that says why the
// others are not in it. It plays no question and trains nothing. See docs/synth.md.
package vqa

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"searchloop/corpus"
	"searchloop/corpus/publish"
	"searchloop/internal/budget"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/internal/tape"
	"searchloop/rollout"
	"searchloop/synth/ask"
)

// Options say what is made from what.
type Options struct {
	Concepts   string   // file
	TextIndex  string   // pages, for concepts that bring none
	ImageIndex string   // images, likewise
	Gallery    string   // passages with images, which parts of images are compared with
	Against    []string // questions datasets that must stay unseen
	Split      string   // of the rows; "" = train
	Out        string

	WriterURL, WriterModel   string
	CheckerURL, CheckerModel string
	Limits                   budget.Limits
	Publish                  publish.Options // storage of the parts of images that are searched for live
	Cache, Record, Replay    string
	Limit                    int // concepts at most; 0 = all
}

// Environment variables of the models' keys.
const (
	WriterKey  = "WRITER_API_KEY"
	CheckerKey = "CHECKER_API_KEY"
)

// patience is how failures of the models are waited for; tests shorten it.
var patience retry.Options

// Names of the side parts.
const (
	OutcomesFile = "outcomes.jsonl"
	FunnelFile   = "funnel.json"
)

// Run makes the dataset that o describes. It ends with an error of kind Service
// when a model is gone or the budget is used up; what is finished is kept.
func Run(ctx context.Context, r *job.Run, o Options) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	if o.Concepts == "" {
		return fail.New(fail.Usage, "synth", "", "--concepts is needed")
	}
	if len(rec.Synth.Kinds) == 0 {
		return fail.WithHint(fail.New(fail.Usage, "synth", "", "the recipe has no synth.kinds"), "use --recipe synth, or one that extends it")
	}
	if o.WriterModel != "" {
		rec.Synth.Writer.Model = o.WriterModel
	}
	if o.CheckerModel != "" {
		rec.Synth.Checker.Model = o.CheckerModel
	}
	if o.Split == "" {
		o.Split = "train"
	}
	nameless := !slices.ContainsFunc(rec.Synth.Kinds, func(k recipe.Kind) bool { return !k.Crops })
	concepts, err := readConcepts(o.Concepts, nameless)
	if err != nil {
		return err
	}
	if o.Limit > 0 && o.Limit < len(concepts) {
		concepts = concepts[:o.Limit]
	}
	inputs := map[string]string{"concepts": o.Concepts, "text_index": o.TextIndex, "image_index": o.ImageIndex, "gallery": o.Gallery}
	for i, dir := range o.Against {
		inputs[fmt.Sprintf("against_%03d", i)] = dir
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: corpus.Questions, Version: corpus.QuestionsVersion, Ext: "parquet", Single: true, Inputs: inputs,
		Params: struct {
			Synth     recipe.Synth     `json:"synth"`
			Seed      uint64           `json:"seed"`
			Tools     []recipe.Tool    `json:"tools"`
			Retrieval recipe.Retrieval `json:"retrieval"`
			System    string           `json:"system"`
			Prefix    string           `json:"prefix"`
			Protocol  string           `json:"protocol,omitempty"` // of kinds with crops
			Split     string           `json:"split"`
			Limit     int              `json:"limit,omitempty"`
			Writer    string           `json:"writer_url"`
			Checker   string           `json:"checker_url"`
			Images    string           `json:"images,omitempty"`
		}{rec.Synth, rec.Seed, rec.Tools, rec.Retrieval, rec.Protocol.System, rec.Protocol.UserPrefix, lookProtocol(rec), o.Split, o.Limit, secret.WithoutUser(o.WriterURL), secret.WithoutUser(o.CheckerURL), digest(concepts)}})
	switch {
	case err != nil || d.Complete():
		return err
	case d.DryRun():
		estimate(r, rec.Synth, len(concepts))
		return nil
	}
	var funnel *Funnel
	if err := d.Each(func(sh *job.Shard) (err error) {
		funnel, err = makeShard(ctx, r, sh, rec, o, concepts)
		return err
	}); err != nil {
		return err
	}
	if err := d.Seal(map[string]any{"kinds": len(rec.Synth.Kinds), "concepts": len(concepts)}); err != nil {
		return err
	}
	if funnel != nil {
		r.Result(funnel)
		if !r.JSON {
			funnel.print(r.Out)
		}
	}
	return nil
}

// lookProtocol is the protocol in which looks are written.
func lookProtocol(rec *recipe.Recipe) string {
	if !slices.ContainsFunc(rec.Synth.Kinds, func(k recipe.Kind) bool { return k.Crops }) {
		return ""
	}
	return rec.Protocol.Name
}

// estimate says for a dry run what it can cost at most.
func estimate(r *job.Run, s recipe.Synth, concepts int) {
	write, check := 0, 0
	for _, k := range s.Kinds {
		write++
		for _, p := range []string{s.Blind, s.Sight, s.Unique, s.Right} {
			if p != "" {
				check++
			}
		}
		if k.Crops {
			boxes := cmp.Or(s.MaxBoxes, 4)
			write += 1 + boxes
			check += boxes * cmp.Or(s.Hits, 5)
		}
		if k.Hops > 0 {
			write += 2*k.Hops + 1
		}
	}
	write, check = 2*write*concepts, 2*check*concepts // every reply is asked for at most twice
	fmt.Fprintf(r.Out, "  at most %d questions: %d requests to the writer, %d to the checker; replies of at most %d and %d tokens%s\n", concepts*len(s.Kinds), write, check,
		write*s.Writer.MaxTokens, check*s.Checker.MaxTokens, recipe.Dollars(write*s.Writer.MaxTokens, s.Writer.Price))
}

// makeShard makes the one shard: every concept and kind by itself, side by side and
// journaled; then, in the order of the file, what they have in common is looked at.
func makeShard(ctx context.Context, r *job.Run, sh *job.Shard, rec *recipe.Recipe, o Options, concepts []Concept) (*Funnel, error) {
	j, err := sh.Journal()
	if err != nil {
		return nil, err
	}
	if err := keep(sh, j, o.Out); err != nil {
		return nil, err
	}
	m := &maker{rec: rec, o: o, s: rec.Synth}
	if m.store, err = corpus.OpenStore(filepath.Join(o.Out, "images")); err != nil {
		return nil, err
	}
	items := m.items(concepts)
	done := map[string]*Outcome{}
	var used manifest.Usage
	var todo []item
	for _, it := range items {
		out, err := entry(j, it.key)
		if err != nil {
			return nil, err
		}
		if out != nil {
			used = used.Add(out.Used)
		}
		if out == nil || out.Stage == StageFailed && r.RetryFailed {
			todo = append(todo, it)
			continue
		}
		done[it.key] = out
	}
	if len(todo) > 0 {
		close, err := m.open(ctx, r, used)
		if err != nil {
			return nil, err
		}
		defer close()
		if err := m.all(ctx, r, j, todo, len(done)); err != nil {
			return nil, err
		}
		for _, it := range todo {
			if done[it.key], err = entry(j, it.key); err != nil {
				return nil, err
			}
		}
	}
	if err := m.store.Sync(); err != nil {
		return nil, err
	}
	if err := m.compare(items, done); err != nil {
		return nil, err
	}
	return m.write(sh, items, done, int64(len(items)-len(todo)))
}

// maker makes questions.
type maker struct {
	rec *recipe.Recipe
	s   recipe.Synth
	o   Options

	search          *rollout.Search
	store           *corpus.ImageStore
	writer, checker *ask.Model
	kinds           map[string]*ask.Prompt
	looker          *looker     // nil: no kind has crops
	next, folded    *ask.Prompt // nil: no kind has hops

	blind, sight, one, okay *ask.Prompt // nil: no such check
}

// item is one concept and kind.
type item struct {
	key     string
	concept *Concept
	kind    *recipe.Kind
}

func (m *maker) items(concepts []Concept) (out []item) {
	for i := range concepts {
		for k := range m.s.Kinds {
			out = append(out, item{m.s.Kinds[k].Name + "/" + concepts[i].ID, &concepts[i], &m.s.Kinds[k]})
		}
	}
	return out
}

// open connects to models and searches.
func (m *maker) open(ctx context.Context, r *job.Run, used manifest.Usage) (func(), error) {
	s, o := m.s, m.o
	var err error
	if m.kinds, err = prompts(s); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		to                 **ask.Prompt
		name, system, text string
	}{{&m.blind, "synth.blind", s.Judge, s.Blind}, {&m.sight, "synth.sight", s.Judge, s.Sight}, {&m.one, "synth.unique", s.Judge, s.Unique}, {&m.okay, "synth.right", s.Judge, s.Right},
		{&m.next, "synth.link", s.System, s.Link}, {&m.folded, "synth.fold", s.System, s.Fold}} {
		if c.text != "" {
			if *c.to, err = ask.NewPrompt(c.name, c.system, c.text); err != nil {
				return nil, err
			}
		}
	}
	limits := budget.New(o.Limits, used)
	recorded, err := tape.Open(o.Record, o.Replay)
	if err != nil {
		return nil, err
	}
	opt := ask.Options{Role: "writer", URL: o.WriterURL, Key: WriterKey, Say: s.Writer, Seed: m.rec.Seed, Conns: cmp.Or(s.Concurrency, 8), Budget: limits, Log: r.Log,
		Retry: patience, Timeout: time.Duration(cmp.Or(s.TimeoutSec, 300)) * time.Second, Tape: recorded}
	if m.writer, err = ask.Open(ctx, opt); err != nil {
		return nil, err
	}
	crops := lookProtocol(m.rec) != ""
	if m.blind != nil || m.sight != nil || m.one != nil || m.okay != nil || crops {
		opt.Role, opt.URL, opt.Key, opt.Say = "checker", o.CheckerURL, CheckerKey, s.Checker
		if m.checker, err = ask.Open(ctx, opt); err != nil {
			return nil, err
		}
		if m.checker.Name() == m.writer.Name() && secret.WithoutUser(o.CheckerURL) == secret.WithoutUser(o.WriterURL) {
			r.Log.Warn("writer and checker are the same model: it will like its own questions", "model", m.writer.Name())
		}
	}
	m.search, err = rollout.OpenSearch(ctx, r, m.rec, rollout.Options{Out: o.Out, Run: "synth", TextIndex: o.TextIndex, ImageIndex: o.ImageIndex, Gallery: o.Gallery,
		Publish: o.Publish, Cache: o.Cache, Record: o.Record, Replay: o.Replay, MaxCost: o.Limits.Dollars}, nil)
	if err != nil {
		return nil, err
	}
	if crops {
		if m.looker, err = openLooker(m.rec, m.search.Sources); err != nil {
			return nil, errors.Join(err, m.search.Close())
		}
	}
	return func() { _ = m.search.Close() }, nil
}

func prompts(s recipe.Synth) (map[string]*ask.Prompt, error) {
	out := map[string]*ask.Prompt{}
	for _, k := range s.Kinds {
		p, err := ask.NewPrompt("synth.kinds."+k.Name, s.System, k.Prompt)
		if err != nil {
			return nil, err
		}
		out[k.Name] = p
	}
	return out, nil
}

// all makes the questions of the items side by side.
func (m *maker) all(ctx context.Context, r *job.Run, j journaled, todo []item, reused int) error {
	progress := r.Progress("questions", int64(len(todo)+reused))
	defer progress.Done()
	progress.Skip(int64(reused))
	samples := r.Samples(ctx, cmp.Or(m.s.Concurrency, 8))
	for _, it := range todo {
		if !samples.Go(func(ctx context.Context) error {
			out, err := m.make(ctx, it)
			if err != nil {
				return err
			}
			if out.Stage == StageFailed {
				progress.Add(0, 1)
			} else {
				progress.Add(1, 0)
			}
			payload, err := json.Marshal(out)
			if err != nil {
				return fail.Wrap(fail.Bug, "journal question", it.key, err)
			}
			return j.Append(it.key, payload)
		}) {
			break
		}
	}
	return samples.Wait("make questions")
}

// journaled is the part of a journal that is used.
type journaled interface {
	Get(key string) ([]byte, bool)
	Append(key string, payload []byte) error
	Path() string
}

func entry(j journaled, key string) (*Outcome, error) {
	payload, ok := j.Get(key)
	if !ok {
		return nil, nil
	}
	out := new(Outcome)
	if err := json.Unmarshal(payload, out); err != nil {
		return nil, fail.New(fail.BadInput, "read journal", j.Path(), "question %s: %w", key, err)
	}
	return out, nil
}

// id of a question: by what it was made of.
func id(it item) string { return "synth_" + strings.ReplaceAll(it.key, "/", "_") }

// question puts the row together, as prep does.
func (m *maker) question(it item, w *written, image string) corpus.Question {
	q := corpus.Question{ID: id(it), DataSource: "searchloop/synth", Ability: "search", AgentName: "tool_agent", Text: strings.TrimSpace(w.Question), Split: m.o.Split, Category: w.Type}
	answer := strings.TrimSpace(w.Answer)
	q.Answers = []string{answer}
	q.RewardModel = corpus.RewardModel{Style: "rule", GroundTruth: corpus.GroundTruth{Target: []string{answer}}, CandidateAnswers: "[]"}
	q.ExtraInfo = corpus.ExtraInfo{Index: q.ID, Split: q.Split, Question: q.Text}
	if s := m.rec.Protocol.System; s != "" {
		q.Prompt = append(q.Prompt, corpus.Message{Role: "system", Content: s})
	}
	text := m.rec.Protocol.UserPrefix
	if image != "" {
		q.ImageIDs = []string{image}
		text += "<image>"
	}
	q.Prompt = append(q.Prompt, corpus.Message{Role: "user", Content: text + q.Text})
	return q
}

// isOwn tells errors of one question from those of the job.
func isOwn(err error) (reason, detail string, failed, ok bool) {
	var bad *ask.Bad
	var broken *ask.Broken
	switch {
	case errors.As(err, &bad):
		return bad.Reason, bad.Detail, false, true
	case errors.As(err, &broken):
		return "server", broken.Error(), true, true
	}
	return "", "", false, false
}
