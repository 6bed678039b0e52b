package job

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/journal"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// Spending is what all attempts at a shard have asked of outside providers, kept on
// disk as it happens: a call of an attempt that was killed or thrown away has been
// paid all the same. Each attempt has a line a provider, which it writes anew with
// every change, so that nothing is counted twice however often it is read. Safe for
// concurrent use.
type Spending struct {
	journal *journal.Journal
	attempt string

	mu  sync.Mutex
	err error // the first failure to write
}

// spendingHeader begins the journal whatever the parameters: what an attempt with
// others has cost is part of what the dataset has cost.
const spendingHeader = "spending"

// earlier is the line of the finished part that this shard replaces.
const earlier = "earlier"

// Spending opens the record of what the shard's attempts have cost. With the
// shards counted anew, the first one takes over what the others of old had spent.
func (s *Shard) Spending(attempt string) (*Spending, error) {
	path := s.d.spendingPath(s.Shard)
	j, err := journal.Open(path, spendingHeader)
	if err != nil {
		return nil, err
	}
	p := &Spending{journal: j, attempt: attempt}
	if s.previous != nil && s.previous.Usage != nil {
		err = p.enter(earlier, s.previous.Usage.Providers)
	}
	if s.Shard.I == 0 {
		err = errors.Join(err, p.adopt(s.d))
	}
	if err != nil {
		j.Close()
		return nil, err
	}
	return p, nil
}

// adopt takes over what attempts with another number of shards have spent.
func (p *Spending) adopt(d *Dataset) error {
	entries, err := os.ReadDir(d.work(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail.Wrap(fail.Disk, "read folder", d.work(""), err)
	}
	for _, e := range entries {
		_, sh, ext, ok := shard.FromName(e.Name())
		if !ok || ext != spendingExt || sh.N == d.n {
			continue
		}
		old, err := journal.Open(d.work(e.Name()), spendingHeader)
		if err != nil {
			return err
		}
		sum, err := (&Spending{journal: old}).Sum()
		err = errors.Join(err, old.Close())
		if err == nil {
			err = p.enter(e.Name(), sum) // a second time it replaces itself
		}
		if err == nil {
			err = remove(filepath.Join(d.work(""), e.Name()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Enter notes what this attempt has asked of a provider so far, in all.
func (p *Spending) Enter(provider string, sum manifest.Provider) {
	err := p.enter(p.attempt, map[string]manifest.Provider{provider: sum})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

func (p *Spending) enter(attempt string, of map[string]manifest.Provider) error {
	for name, sum := range of {
		text, err := json.Marshal(map[string]manifest.Provider{name: sum})
		if err != nil {
			return fail.Wrap(fail.Bug, "note what was spent", p.journal.Path(), err)
		}
		if err := p.journal.Append(attempt+" "+name, text); err != nil {
			return err
		}
	}
	return nil
}

// Sum is what all attempts have asked for; nil for nothing. It fails when
// something could not be kept.
func (p *Spending) Sum() (map[string]manifest.Provider, error) {
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var sum manifest.Usage
	for _, key := range slices.Sorted(slices.Values(p.journal.Keys())) { // dollars add up the same way each time
		payload, ok := p.journal.Get(key)
		var of map[string]manifest.Provider
		if !ok || json.Unmarshal(payload, &of) != nil {
			return nil, fail.New(fail.BadInput, "read what was spent", p.journal.Path(), "the record %q is damaged", key)
		}
		sum = sum.Add(manifest.Usage{Providers: of})
	}
	return sum.Providers, nil
}

// Close ends the record; what was entered stays.
func (p *Spending) Close() error { return p.journal.Close() }

// spendingExt is the extension of the files beside the journals.
const spendingExt = "spending"

func (d *Dataset) spendingPath(s shard.Spec) string { return d.work(s.Name("part", spendingExt)) }
