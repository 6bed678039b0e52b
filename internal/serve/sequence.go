package serve

import (
	"bytes"
	"context"
	"sync"

	"searchloop/internal/token"
)

// prompt is a conversation ready for the model.
type prompt struct {
	ids    []int32
	images []promptImage // in order
	pos    [3][]int32
	next   int32 // position of the token after the prompt
}

type promptImage struct {
	grid    [3]int32
	offset  int // of its first token in ids
	tokens  int
	key     [32]byte // identity of its pixels
	patches []float32
}

// limits say when a turn ends.
type limits struct {
	tokens  int
	stops   [][]byte
	include bool           // the stop string is part of the text
	end     map[int32]bool // end marks
}

// sequence is one turn on its way. The engine alone writes it; what a stream may
// read while it grows is guarded by mu.
type sequence struct {
	ctx    context.Context
	prompt *prompt
	sampling
	limits
	tops int // likeliest tokens to report for each token

	// Of the engine.
	cache    Cache
	fed      int // tokens in cache
	reused   int // of them, tokens that were there already
	reserved int // tokens promised to it
	step     [3][1]int32
	last     [1]int32

	mu       sync.Mutex
	ids      []int32
	logprobs []float32
	likely   [][]likely
	text     []byte // of ids, without end mark; cut at a stop string
	ends     []int  // len(text) after each id
	finish   string // "", stop, length
	stop     []byte // the stop string that ended it, nil for none
	err      error
	wake     chan struct{} // a token or the end has come; of capacity 1
	done     chan struct{} // closed at the end
}

const (
	finishStop   = "stop"
	finishLength = "length"
)

// add takes a drawn token and decides whether the turn ends.
func (s *sequence) add(d drawn, tok *token.BPE) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, d.id)
	s.logprobs = append(s.logprobs, d.logprob)
	if s.tops > 0 {
		s.likely = append(s.likely, d.top)
	}
	if s.end[d.id] {
		s.finish = finishStop
	} else {
		before := len(s.text)
		s.text = tok.AppendBytes(s.text, d.id)
		if at, stop := s.findStop(before); at >= 0 {
			if s.include {
				at += len(stop)
			}
			s.text = s.text[:at]
			s.finish, s.stop = finishStop, stop
		} else if len(s.ids) >= s.limits.tokens {
			s.finish = finishLength
		}
	}
	s.ends = append(s.ends, len(s.text))
	s.signal()
}

// findStop returns the first stop string that the bytes from before on complete.
func (s *sequence) findStop(before int) (at int, stop []byte) {
	at = -1
	for _, w := range s.stops {
		from := max(0, before-len(w)+1)
		if i := bytes.Index(s.text[from:], w); i >= 0 && (at < 0 || from+i < at) {
			at, stop = from+i, w
		}
	}
	return at, stop
}

// settled is how many bytes of the text can be told: what may still become part
// of a stop string, or is only part of a character, is held back until the end.
// With mu held.
func (s *sequence) settled() int {
	if s.finish != "" || s.err != nil {
		return len(s.text)
	}
	n := len(s.text) - token.Partial(s.text)
	for _, w := range s.stops {
		for k := min(len(w)-1, len(s.text)); k > len(s.text)-n; k-- {
			if bytes.HasSuffix(s.text, w[:k]) {
				n = len(s.text) - k
				break
			}
		}
	}
	return n
}

func (s *sequence) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// fail ends the turn without an answer.
func (s *sequence) fail(err error) {
	s.mu.Lock()
	s.err = err
	s.signal()
	s.mu.Unlock()
}

// total is the number of tokens of prompt and turn.
func (s *sequence) total() int { return len(s.prompt.ids) + len(s.ids) }

// nextStep fills st with the sequence's next tokens, at most budget of its prompt
// (more if an image takes more), and returns how many.
func (s *sequence) nextStep(st *Step, budget int) int {
	st.Cache, st.Images = s.cache, nil
	p := s.prompt
	if s.fed >= len(p.ids) {
		n := int32(s.fed - len(p.ids))
		s.last[0] = s.ids[n]
		for a := range s.step {
			s.step[a][0] = p.next + n
			st.Positions[a] = s.step[a][:]
		}
		st.Tokens = s.last[:]
		return 1
	}
	to := min(s.fed+max(budget, 1), len(p.ids))
	for _, im := range p.images {
		if im.offset >= s.fed && im.offset < to {
			to = max(to, im.offset+im.tokens)
			st.Images = append(st.Images, StepImage{Grid: im.grid, Patches: im.patches, Offset: int32(im.offset - s.fed)})
		}
	}
	st.Tokens = p.ids[s.fed:to]
	for a := range p.pos {
		st.Positions[a] = p.pos[a][s.fed:to]
	}
	return to - s.fed
}
