package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"searchloop/internal/kv"
	"searchloop/internal/retry"
)

// books is a store whose queues are written down; they can fail.
type books struct {
	kv.Store
	mu    sync.Mutex
	slots map[string]string
	fail  bool
}

func (b *books) Slot(_ context.Context, key string, every time.Duration, burst int) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail {
		return 0, errors.New("the store is gone")
	}
	b.slots[key] = fmt.Sprintf("%s/%d", every, burst)
	return 0, nil
}

// Each provider has a limit of its own, whoever was opened first; and a limiter that
// fails is no answer: the request is made all the same.
func TestG14EachProviderHasItsOwnLimit(t *testing.T) {
	folder, err := kv.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	store := &books{Store: folder, slots: map[string]string{}}
	d := NewDesk(DeskOptions{Store: store})
	fast, slow := d.Provider(Options{Name: "fast", Rate: 100, Burst: 5}), d.Provider(Options{Name: "slow", Rate: 2})
	ask := func(p *Provider, what string) (Answer, error) {
		return p.Ask(t.Context(), what, func(context.Context) (Answer, *retry.Fault) { return Answer{Body: []byte(what)}, nil })
	}
	for _, p := range []*Provider{fast, slow, fast} {
		if _, err := ask(p, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(store.slots); got != "map[rate/fast:10ms/5 rate/slow:500ms/1]" {
		t.Error(got)
	}
	store.fail = true
	if a, err := ask(fast, "y"); err != nil || string(a.Body) != "y" {
		t.Errorf("%s %v", a.Body, err)
	}
}
