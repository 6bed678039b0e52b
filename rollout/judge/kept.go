package judge

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"searchloop/internal/kv"
	"searchloop/rollout/trajectory"
)

// kept holds verdicts by what was judged and by whom: of this process, and in a
// store across epochs and runs. Only verdicts are kept: a judge that failed, or said
// neither yes nor no, is asked again. A store that fails costs calls, nothing else.
// Safe for concurrent use.
type kept struct {
	store  kv.Store // nil: none
	log    *slog.Logger
	flight singleflight.Group // equal rows at the same time share a call
	told   sync.Once
	reused atomic.Int64 // verdicts that no judge was asked for

	mu   sync.Mutex
	done map[string]ruling
}

// ruling is a verdict with the judge's reply: a value of the store.
type ruling struct {
	Verdict string `json:"verdict"`
	Reply   string `json:"reply"`
}

// decided says whether a verdict is yes or no.
func decided(verdict string) bool {
	return verdict == trajectory.Correct || verdict == trajectory.Incorrect
}

// once gives the verdict kept under key, or asks for it and keeps it.
func (k *kept) once(ctx context.Context, key string, ask func() (ruling, error)) (ruling, error) {
	asked := false
	v, err, _ := k.flight.Do(key, func() (any, error) {
		if r, ok := k.get(ctx, key); ok {
			return r, nil
		}
		asked = true
		r, err := ask()
		if err == nil && decided(r.Verdict) {
			k.put(ctx, key, r)
		}
		return r, err
	})
	if err != nil {
		return ruling{}, err
	}
	if !asked {
		k.reused.Add(1)
	}
	return v.(ruling), nil
}

func (k *kept) get(ctx context.Context, key string) (r ruling, ok bool) {
	k.mu.Lock()
	r, ok = k.done[key]
	k.mu.Unlock()
	if ok || k.store == nil {
		return r, ok
	}
	text, ok, err := k.store.Get(ctx, key)
	k.tell(ctx, err)
	if !ok || err != nil || json.Unmarshal(text, &r) != nil || !decided(r.Verdict) {
		return ruling{}, false
	}
	k.remember(key, r)
	return r, true
}

func (k *kept) put(ctx context.Context, key string, r ruling) {
	k.remember(key, r)
	if k.store == nil {
		return
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = k.store.Put(ctx, key, text, 0)
	}
	k.tell(ctx, err)
}

func (k *kept) remember(key string, r ruling) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done == nil {
		k.done = map[string]ruling{}
	}
	k.done[key] = r
}

// tell says once that the store fails.
func (k *kept) tell(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		k.told.Do(func() { k.log.Warn("the store of verdicts fails; judges are asked again", "because", err) })
	}
}
