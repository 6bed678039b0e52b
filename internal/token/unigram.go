package token

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unigram is SentencePiece's unigram language model as Hugging Face's tokenizers
// run it (XLM-R, multilingual E5): normalise, split at blanks, mark where words
// begin with "▁", then cut each word into the pieces of greatest total score.
type Unigram struct {
	norm     []func(string) string
	split    bool // at blanks, which vanish
	meta     metaspace
	pieces   pieceTrie
	scores   []float64 // by id
	ids      map[string]int32
	unk      int32
	unkScore float64
	bytes    bool       // unknown characters are spelt as bytes
	byteIDs  [256]int32 // -1: the vocabulary lacks it
	bos, eos int32      // -1: none
	size     int
	literal  *finder
	normal   *finder
}

// metaspace is the pre-tokenizer that writes blanks as a visible character.
type metaspace struct {
	mark    string
	prepend byte // 'a' always, 'f' at the beginning of the text, 'n' never
	split   bool // before each mark
}

// unkPenalty is how much worse than the worst piece an unknown character is.
const unkPenalty = 10

// Size is the highest id plus one.
func (u *Unigram) Size() int { return u.size }

// Encode returns the model's mark of the beginning, the ids of s and the mark of
// the end, cut to maxTokens in all (no limit when maxTokens is 0; never fewer than
// the marks).
func (u *Unigram) Encode(s string, maxTokens int) []int32 {
	if !utf8.ValidString(s) {
		s = Text([]byte(s))
	}
	e := unigramText{u: u, ids: make([]int32, 0, 2+len(s)/3), limit: maxTokens, begin: true}
	before, after := 0, 0
	if u.bos >= 0 {
		e.ids = append(e.ids, u.bos)
		before = 1
	}
	if u.eos >= 0 {
		after = 1
	}
	u.literal.split(s, false, func(text string, id int32) {
		if id >= 0 {
			e.ids = append(e.ids, id)
		} else if !e.full() {
			for _, f := range u.norm {
				text = f(text)
			}
			u.normal.split(text, false, e.part)
		}
		e.begin = false
	})
	if maxTokens > 0 {
		e.ids = e.ids[:min(len(e.ids), max(maxTokens-after, before))]
	}
	if u.eos >= 0 {
		e.ids = append(e.ids, u.eos)
	}
	return e.ids
}

// unigramText is a text on its way to ids.
type unigramText struct {
	u     *Unigram
	ids   []int32
	limit int
	begin bool // nothing of the text has been seen
	best  []ending
	word  []byte
}

func (e *unigramText) full() bool { return e.limit > 0 && len(e.ids) >= e.limit }

// part takes a normalised text or an added token.
func (e *unigramText) part(text string, id int32) {
	if id >= 0 {
		e.ids = append(e.ids, id)
		e.begin = false
		return
	}
	if !e.u.split {
		e.mark(text)
		e.begin = false
		return
	}
	for text != "" && !e.full() {
		start := strings.IndexFunc(text, notBlank)
		if start < 0 {
			break
		}
		e.begin = e.begin && start == 0
		text = text[start:]
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			end = len(text)
		}
		e.mark(text[:end])
		e.begin = false
		text = text[end:]
	}
	e.begin = false
}

func notBlank(r rune) bool { return !unicode.IsSpace(r) }

// mark writes blanks as marks and cuts the words.
func (e *unigramText) mark(text string) {
	m := &e.u.meta
	if m.mark == "" {
		e.cut(text)
		return
	}
	w := e.word[:0]
	if (m.prepend == 'a' || m.prepend == 'f' && e.begin) && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, m.mark) {
		w = append(w, m.mark...)
	}
	for i := range len(text) {
		if text[i] == ' ' {
			w = append(w, m.mark...)
		} else {
			w = append(w, text[i])
		}
	}
	e.word = w
	s := string(w)
	if !m.split {
		e.cut(s)
		return
	}
	for s != "" && !e.full() {
		next := -1
		if from := min(len(m.mark), len(s)); strings.HasPrefix(s, m.mark) {
			if next = strings.Index(s[from:], m.mark); next >= 0 {
				next += from
			}
		} else {
			next = strings.Index(s, m.mark)
		}
		if next < 0 {
			next = len(s)
		}
		e.cut(s[:next])
		s = s[next:]
	}
}

// ending is the best way to a place in the word.
type ending struct {
	score float64
	start int // of the last piece; -1: no way yet
	id    int32
}

// cut appends the ids of the pieces of greatest total score; of equal ones the
// way whose last piece begins first.
func (e *unigramText) cut(s string) {
	u := e.u
	if s == "" {
		return
	}
	if cap(e.best) < len(s)+1 {
		e.best = make([]ending, 2*(len(s)+1))
	}
	best := e.best[:len(s)+1]
	for i := range best {
		best[i] = ending{start: -1}
	}
	for at := 0; at < len(s); {
		here := best[at].score
		width := 1
		if s[at] >= utf8.RuneSelf {
			_, width = utf8.DecodeRuneInString(s[at:])
		}
		single := false
		node := int32(0)
		for end := at; end < len(s); {
			var id int32
			if node, id = u.pieces.step(node, s[end]); node < 0 {
				break
			}
			end++
			if id < 0 {
				continue
			}
			single = single || end-at == width
			if score := u.scores[id] + here; best[end].start < 0 || score > best[end].score {
				best[end] = ending{score, at, id}
			}
		}
		if !single {
			if t, score := &best[at+width], u.unkScore+here; t.start < 0 || score > t.score {
				*t = ending{score, at, u.unk}
			}
		}
		at += width
	}
	first := len(e.ids)
	for end := len(s); end > 0; {
		b := best[end]
		if b.id != u.unk {
			e.ids = append(e.ids, b.id)
			end = b.start
			continue
		}
		// Neighbouring unknown pieces are one.
		start := b.start
		for start > 0 && best[start].id == u.unk {
			start = best[start].start
		}
		e.unknown(s[start:end])
		end = start
	}
	for i, j := first, len(e.ids)-1; i < j; i, j = i+1, j-1 {
		e.ids[i], e.ids[j] = e.ids[j], e.ids[i]
	}
}

// unknown appends what stands for s, last id first.
func (e *unigramText) unknown(s string) {
	if id, ok := e.u.ids[s]; ok {
		e.ids = append(e.ids, id)
		return
	}
	spelt := e.u.bytes
	for i := 0; i < len(s) && spelt; i++ {
		spelt = e.u.byteIDs[s[i]] >= 0
	}
	if !spelt {
		e.ids = append(e.ids, e.u.unk)
		return
	}
	for i := len(s) - 1; i >= 0; i-- {
		e.ids = append(e.ids, e.u.byteIDs[s[i]])
	}
}

// pieceTrie finds the pieces that begin a text: a trie whose edges lie in one hash
// table with open addressing.
type pieceTrie struct {
	keys  []uint32 // node<<8 | byte, plus 1<<31 to tell used slots
	nodes []int32
	piece []int32 // by node: id of the piece that ends here, or -1
	mask  uint32
}

// newPieceTrie makes room for a number of nodes.
func newPieceTrie(nodes int) *pieceTrie {
	size := 16
	for size < 2*nodes {
		size *= 2
	}
	return &pieceTrie{keys: make([]uint32, size), nodes: make([]int32, size), piece: []int32{-1}, mask: uint32(size - 1)}
}

const usedSlot = 1 << 31

func (t *pieceTrie) slot(node int32, b byte) (uint32, bool) {
	key := uint32(node)<<8 | uint32(b) | usedSlot
	for i := key * 0x9e3779b1 >> 7 & t.mask; ; i = (i + 1) & t.mask {
		switch t.keys[i] {
		case key:
			return i, true
		case 0:
			return i, false
		}
	}
}

// step follows the edge b: the next node, -1 when there is none, and the id of the
// piece that ends there, or -1.
func (t *pieceTrie) step(node int32, b byte) (next, id int32) {
	i, ok := t.slot(node, b)
	if !ok {
		return -1, -1
	}
	next = t.nodes[i]
	return next, t.piece[next]
}

func (t *pieceTrie) add(s string, id int32) {
	node := int32(0)
	for i := range len(s) {
		at, ok := t.slot(node, s[i])
		if !ok {
			t.keys[at], t.nodes[at] = uint32(node)<<8|uint32(s[i])|usedSlot, int32(len(t.piece))
			t.piece = append(t.piece, -1)
		}
		node = t.nodes[at]
	}
	if node > 0 {
		t.piece[node] = id
	}
}
