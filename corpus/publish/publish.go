// Package publish uploads the images of questions to where a live reverse image
// search can see them, and writes down the address of each. A questions dataset and
// image stores go in; a published dataset comes out, one JSON line an image.
//
// Objects are named after their content: what is there already is not uploaded
// again, by whomever it was. It searches for nothing and deletes nothing. The format
// is in docs/published.md.
package publish

import (
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/retry"
	"searchloop/internal/table"
)

// Schema and Version of the dataset.
const (
	Schema  = "published"
	Version = 1
)

// Options say what is published and where.
type Options struct {
	Questions string        // questions dataset
	Images    []string      // image stores, beside the one in the dataset
	Out       string        //
	To        string        // s3://bucket/prefix, or http(s)://host/folder for PUT
	Endpoint  string        // of S3: http(s)://host; "" = AWS
	Public    string        // address under which the objects can be read; "" = signed addresses (S3), or To
	Expires   time.Duration // of signed addresses
}

// Image is one line of the dataset.
type Image struct {
	Image   string    `json:"image"` // SHA-256
	URL     string    `json:"url"`
	Bytes   int       `json:"bytes"`
	Expires time.Time `json:"expires,omitzero"` // of a signed address
}

// uploads is how many images are on their way at once.
const uploads = 16

// patience is how failures of the storage are waited for; tests shorten it.
var patience retry.Options

// Run makes the published dataset that o describes. Images that are missing or
// damaged are rejected and counted. A storage that is gone, or refuses, ends the job
// with an error of kind Service; what was uploaded is not uploaded again.
func Run(ctx context.Context, r *job.Run, o Options) error {
	if o.Questions == "" || o.Out == "" {
		return fail.New(fail.Usage, "publish", "", "--questions and --out are needed")
	}
	if o.Expires <= 0 || o.Expires > maxExpires {
		return fail.New(fail.Usage, "publish", "", "--expires %v is not between 0 and %v", o.Expires, maxExpires)
	}
	at, err := open(o)
	if err != nil {
		return err
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: Schema, Version: Version, Inputs: map[string]string{"questions": o.Questions}, Ext: "jsonl", Single: true,
		Params: struct {
			To, Endpoint, Public string
			Expires              string `json:",omitempty"`
		}{o.To, o.Endpoint, o.Public, expiry(at, o)}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	p := &publisher{run: r, opt: o, at: at}
	patience.Name, patience.Log = "image storage", r.Log
	p.line = retry.New(patience)
	if err := p.find(); err != nil {
		return err
	}
	if err := d.Each(func(sh *job.Shard) error { return p.shard(ctx, sh) }); err != nil {
		return err
	}
	return d.Seal(nil)
}

// expiry is part of what a dataset of signed addresses depends on.
func expiry(at storage, o Options) string {
	if s, ok := at.(*s3); ok && s.public == "" {
		return o.Expires.String()
	}
	return ""
}

// publisher makes the one shard of a published dataset.
type publisher struct {
	run    *job.Run
	opt    Options
	at     storage
	line   *retry.Line
	store  *corpus.ImageStore
	images map[string]string // id → a question that has it
}

// find lists the images of the questions.
func (p *publisher) find() error {
	stores := slices.Clone(p.opt.Images)
	if len(stores) == 0 {
		stores = []string{filepath.Join(p.opt.Questions, "images")}
	}
	var err error
	if p.store, err = corpus.OpenStore(stores...); err != nil {
		return err
	}
	m, err := manifest.Open(p.opt.Questions)
	if err == nil {
		err = m.Require(p.opt.Questions, corpus.Questions, corpus.QuestionsVersion)
	}
	if err != nil {
		return err
	}
	p.images = map[string]string{}
	for q, err := range table.ReadDataset[corpus.Question](p.opt.Questions) {
		if err != nil {
			return err
		}
		for _, id := range q.ImageIDs {
			if old, twice := p.images[id]; !twice || q.ID < old {
				p.images[id] = q.ID
			}
		}
	}
	return nil
}

func (p *publisher) shard(ctx context.Context, sh *job.Shard) error {
	j, err := sh.Journal()
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(p.images))
	progress := p.run.Progress("images", int64(len(ids)))
	defer progress.Done()
	samples := p.run.Samples(ctx, uploads)
	reused := int64(0)
	for _, id := range ids {
		if j.Has(id) {
			reused++
			progress.Skip(1)
			continue
		}
		if !samples.Go(func(ctx context.Context) error {
			err := p.one(ctx, j, id)
			if fail.KindOf(err) == fail.BadInput && err != nil {
				progress.Add(0, 1)
				return nil // rejected when the part is written
			}
			progress.Add(1, 0)
			return err
		}) {
			break
		}
	}
	if err := samples.Wait("publish"); err != nil {
		return err
	}
	return p.write(ctx, sh, j, ids, reused)
}

// one uploads an image unless it is there, and journals its size.
func (p *publisher) one(ctx context.Context, j *journal.Journal, id string) error {
	data, err := p.store.Get(id)
	if err != nil {
		return err
	}
	path, err := p.store.Path(id)
	if err != nil {
		return err
	}
	name := id[:2] + "/" + id + filepath.Ext(path)
	f := p.line.Do(ctx, func(ctx context.Context) *retry.Fault {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		there, f := p.at.has(ctx, name, len(data))
		if f == nil && !there {
			f = p.at.put(ctx, name, data)
		}
		return f
	})
	if f != nil {
		return p.failure(ctx, id, f)
	}
	entry, err := json.Marshal(entry{Name: name, Bytes: len(data)})
	if err != nil {
		return fail.Wrap(fail.Bug, "journal image", id, err)
	}
	return j.Append(id, entry)
}

// entry is a journal payload.
type entry struct {
	Name  string
	Bytes int
}

func (p *publisher) failure(ctx context.Context, id string, f *retry.Fault) error {
	e := &fail.Error{Kind: fail.Service, Op: "upload image", Path: p.opt.To, Sample: id, Err: f, Hint: "run again when the storage answers: what was uploaded is kept"}
	switch {
	case ctx.Err() != nil:
		e.Kind, e.Hint = fail.Interrupted, ""
	case f.Verdict == retry.Stop:
		e.Hint = p.at.remedy()
	}
	return e
}

// write puts the lines into the part, in the order of the images.
func (p *publisher) write(ctx context.Context, sh *job.Shard, j *journal.Journal, ids []string, reused int64) error {
	part, err := sh.Part()
	if err != nil {
		return err
	}
	out, rows := json.NewEncoder(part), int64(0)
	out.SetEscapeHTML(false)
	for _, id := range ids {
		var e entry
		if text, ok := j.Get(id); !ok || json.Unmarshal(text, &e) != nil {
			_, err := p.store.Get(id)
			if err == nil {
				return fail.New(fail.BadInput, "read journal", j.Path(), "image %s is missing or damaged", id)
			}
			sh.Reject(p.opt.Questions, 0, p.images[id], err)
			continue
		}
		line := Image{Image: id, Bytes: e.Bytes}
		if line.URL, line.Expires, err = p.at.address(ctx, e.Name); err != nil {
			return err
		}
		if rows == 0 {
			if err := p.check(ctx, line); err != nil {
				return err
			}
		}
		if err := out.Encode(line); err != nil {
			return fail.Wrap(fail.Disk, "write published", p.opt.Out, err)
		}
		rows++
	}
	return sh.Commit(rows, manifest.Counts{In: int64(len(ids)), OK: rows, Reused: reused})
}
