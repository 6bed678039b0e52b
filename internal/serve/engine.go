package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"searchloop/internal/par"
	"searchloop/internal/token"
)

// engine runs all turns on one model: turns wait in a queue, are admitted while
// there is memory, and then take part in every call of the model, some reading
// their prompts, the others one token further, until they end. One goroutine.
type engine struct {
	model   Model
	tok     *token.BPE
	log     *slog.Logger
	spec    Spec
	context int // greatest length of a sequence
	active  int // greatest number of turns at once
	waiting int // greatest number of turns in the queue
	prefill int // prompt tokens read in one call, about
	tokens  int // greatest number of tokens in all caches
	meter   *meter

	mu      sync.Mutex
	changed sync.Cond
	queue   []*sequence
	running []*sequence // written by the engine's goroutine only
	closing bool        // no new turns
	stopped bool        // the turns that are left fail
	ended   chan struct{}

	// Of the engine's goroutine.
	kept     kept
	reserved int // tokens promised to running turns
	steps    []Step
	draws    []drawn
	bad      []bool
	scratch  sync.Pool
}

var (
	errBusy    = errors.New("the queue is full")
	errClosing = errors.New("the server is shutting down")
)

func (e *engine) start() {
	e.changed.L = &e.mu
	e.kept.limit, e.kept.most = e.tokens, 8*e.active
	e.scratch.New = func() any { return new(scratch) }
	e.ended = make(chan struct{})
	go e.loop()
}

// submit queues a turn; its done channel tells the end.
func (e *engine) submit(s *sequence) error {
	s.wake, s.done = make(chan struct{}, 1), make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return errClosing
	case len(e.queue) >= e.waiting:
		return errBusy
	}
	e.queue = append(e.queue, s)
	e.changed.Signal()
	return nil
}

// drain refuses new turns; the engine ends when the ones there have.
func (e *engine) drain() {
	e.mu.Lock()
	e.closing = true
	e.changed.Signal()
	e.mu.Unlock()
}

// stop makes the turns that are left fail.
func (e *engine) stop() {
	e.mu.Lock()
	e.closing, e.stopped = true, true
	e.changed.Signal()
	e.mu.Unlock()
}

// load is the number of queued and running turns.
func (e *engine) load() (queued, running int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.queue), len(e.running)
}

func (e *engine) loop() {
	defer close(e.ended)
	for {
		e.mu.Lock()
		for len(e.queue) == 0 && len(e.running) == 0 && !e.closing {
			e.changed.Wait()
		}
		if e.stopped {
			for _, s := range e.queue {
				s.fail(errClosing)
				close(s.done)
			}
			e.queue = nil
			for _, s := range e.running {
				s.fail(errClosing)
			}
		}
		e.leave()
		e.admit()
		idle := len(e.running) == 0
		if idle && len(e.queue) == 0 && e.closing {
			e.mu.Unlock()
			e.kept.shrink(0)
			return
		}
		e.mu.Unlock()
		if !idle {
			e.advance()
		}
		e.meter.kept.Store(int64(e.kept.tokens))
	}
}

// admit takes turns from the queue's head while there is room. With mu held.
func (e *engine) admit() {
	e.queue = slices.DeleteFunc(e.queue, func(s *sequence) bool {
		if s.ctx.Err() == nil {
			return false
		}
		s.fail(s.ctx.Err())
		close(s.done)
		return true
	})
	n := 0
	for ; n < len(e.queue) && len(e.running) < e.active; n++ {
		s := e.queue[n]
		need := min(len(s.prompt.ids)+s.limits.tokens, e.context)
		if e.reserved+need > e.tokens && len(e.running) > 0 {
			break
		}
		if !e.place(s, need) {
			break
		}
		s.reserved = need
		e.reserved += need
		e.running = append(e.running, s)
	}
	e.queue = slices.Delete(e.queue, 0, n)
}

// place gives s a cache, with as much of its prompt in it as another cache has.
// It declines when a running turn is just reading what s could share with it.
func (e *engine) place(s *sequence, need int) bool {
	best, have := e.kept.find(s.prompt)
	var from *sequence
	for _, r := range e.running {
		n := shared(s.prompt, r.prompt.ids, r.prompt.images)
		if n <= have {
			continue
		}
		if n > r.fed {
			if n > have+minShare {
				return false // soon
			}
			continue
		}
		have, from = n, r
	}
	switch {
	case from != nil:
		s.cache = from.cache.Fork()
		s.cache.Truncate(have)
	case have > 0:
		s.cache = e.kept.use(best, have)
	default:
		s.cache = e.model.NewCache(e.context)
	}
	s.fed, s.reused = have, have
	e.kept.shrink(max(0, e.tokens-e.reserved-need))
	e.meter.reused.Add(int64(have))
	return true
}

// minShare is how many tokens must be won by waiting a call for another turn.
const minShare = 16

// leave takes the turns that have ended out. With mu held.
func (e *engine) leave() {
	left := e.running[:0]
	for _, s := range e.running {
		if s.finish == "" && s.err == nil {
			if s.ctx.Err() == nil {
				left = append(left, s)
				continue
			}
			s.fail(s.ctx.Err())
		}
		e.reserved -= s.reserved
		if s.err == nil || s.ctx.Err() != nil {
			e.kept.keep(s)
		} else {
			s.cache.Release()
		}
		s.cache = nil
		close(s.done)
	}
	clear(e.running[len(left):])
	e.running = left
	e.kept.shrink(max(0, e.tokens-e.reserved))
}

// advance calls the model once for all running turns and draws their tokens.
func (e *engine) advance() {
	run := e.running
	e.steps = e.steps[:0]
	prompt, budget := 0, e.prefill
	part := make([]*sequence, 0, len(run))
	fed := make([]int, 0, len(run))
	for _, s := range run {
		reading := s.fed < len(s.prompt.ids)
		if reading && budget <= 0 {
			continue
		}
		e.steps = append(e.steps, Step{})
		n := s.nextStep(&e.steps[len(e.steps)-1], budget)
		if reading {
			budget -= n
			prompt += n
		}
		part = append(part, s)
		fed = append(fed, n)
	}
	began := time.Now()
	logits, err := e.extend()
	e.meter.model.Add(int64(time.Since(began)))
	if err == nil && len(logits) != len(part) {
		err = fmt.Errorf("%d logits for %d sequences", len(logits), len(part))
	}
	if err != nil {
		e.log.Error("the model failed", "sequences", len(part), "error", err)
		for _, s := range part {
			s.fail(fmt.Errorf("the model failed: %w", err))
		}
		return
	}
	e.meter.prompt.Add(int64(prompt))
	if len(e.draws) < len(part) {
		e.draws, e.bad = make([]drawn, e.active), make([]bool, e.active)
	}
	par.For(len(part), 8, func(lo, hi int) {
		w := e.scratch.Get().(*scratch)
		for i := lo; i < hi; i++ {
			s := part[i]
			if s.fed += fed[i]; s.fed >= len(s.prompt.ids) {
				d, ok := s.draw(logits[i], s.fed, s.tops, w)
				e.draws[i], e.bad[i] = d, !ok
			}
		}
		e.scratch.Put(w)
	})
	sampled := 0
	for i, s := range part {
		switch {
		case s.fed < len(s.prompt.ids):
		case e.bad[i]:
			s.fail(errors.New("the model's logits are no numbers"))
		default:
			s.add(e.draws[i], e.tok)
			sampled++
		}
		e.draws[i] = drawn{}
	}
	e.meter.add(sampled)
}

// extend calls the model and turns a panic into an error: it ends the turns at
// hand, not the server.
func (e *engine) extend() (logits [][]float32, err error) {
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("panic in the model", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return e.model.Extend(e.steps)
}
