package serve

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"searchloop/internal/token"
)

// lossyText is the text as a client gets it.
func lossyText(b []byte) string {
	q := quote(nil, string(b))
	return string(q[1 : len(q)-1])
}

// TestStops feeds texts byte by byte and in random tokens: the text ends before
// the first stop string, whatever borders its tokens have, and what is told early
// is never taken back.
func TestStops(t *testing.T) {
	tok := chatTokenizer(t)
	end, _ := tok.ID("<|im_end|>")
	r := rand.New(rand.NewPCG(1, 2))
	stops := []string{"</answer>", "</tool_call>", "\n\n", "aab", "ab", "é", "日本", "<|im"}
	pieces := []string{"a", "b", "aa", "</", "answer", ">", "tool_call", "\n", "é", "日", "本", "\xff", "\xe6", "<|", "im", " river", "</answer"}
	for range 4000 {
		var text strings.Builder
		for range 1 + r.IntN(14) {
			text.WriteString(pieces[r.IntN(len(pieces))])
		}
		// As ids: sometimes single bytes, sometimes tokens.
		var ids []int32
		whole := text.String()
		for i := 0; i < len(whole); {
			n := min(1+r.IntN(6), len(whole)-i)
			if utf8.ValidString(whole[i:i+n]) && r.IntN(2) == 0 {
				ids = append(ids, tok.EncodeOrdinary(whole[i:i+n])...)
			} else {
				for _, c := range []byte(whole[i : i+n]) {
					ids = append(ids, byteID(tok, c))
				}
			}
			i += n
		}
		whole = ""
		for _, id := range ids { // composed characters may have changed
			whole = string(tok.AppendBytes([]byte(whole), id))
		}
		s := &sequence{ctx: context.Background(), limits: limits{tokens: 1000, end: map[int32]bool{end: true}, include: r.IntN(3) == 0}, wake: make(chan struct{}, 1)}
		var used []string
		for range r.IntN(3) {
			w := stops[r.IntN(len(stops))]
			used = append(used, w)
			s.stops = append(s.stops, []byte(w))
		}
		ids = append(ids, end)
		var told []byte
		fed := 0
		for _, id := range ids {
			s.add(drawn{id: id}, tok)
			fed++
			n := s.settled()
			if n < len(told) || !bytes.Equal(told, s.text[:len(told)]) {
				t.Fatalf("%q with stops %q: told %q, then %q", whole, used, told, s.text)
			}
			told = append(told, s.text[len(told):n]...)
			if s.finish != "" {
				break
			}
		}
		// The reference: the earliest stop string to be complete; of those complete
		// with the same token the one that begins first.
		want, wantFed := whole, len(ids)
		sofar := []byte{}
	find:
		for i, id := range ids[:len(ids)-1] {
			sofar = tok.AppendBytes(sofar, id)
			at, length := -1, 0
			for _, w := range used {
				if k := bytes.Index(sofar, []byte(w)); k >= 0 && (at < 0 || k < at) {
					at, length = k, len(w)
				}
			}
			if at >= 0 {
				if s.include {
					at += length
				}
				want, wantFed = string(sofar[:at]), i+1
				break find
			}
		}
		if string(told) != want || string(s.text) != want || fed != wantFed || s.finish != finishStop || len(s.ids) != fed {
			t.Fatalf("%q with stops %q (kept: %v): text %q after %d tokens, want %q after %d", whole, used, s.include, told, fed, want, wantFed)
		}
	}
}

func byteID(tok *token.BPE, c byte) int32 {
	for id := range int32(256) {
		if b := tok.AppendBytes(nil, id); len(b) == 1 && b[0] == c {
			return id
		}
	}
	panic("no such byte")
}

func TestLengthLimit(t *testing.T) {
	tok := chatTokenizer(t)
	s := &sequence{limits: limits{tokens: 3, stops: [][]byte{[]byte("!!!!")}}, wake: make(chan struct{}, 1)}
	for range 3 {
		s.add(drawn{id: 0}, tok)
	}
	if s.finish != finishLength || string(s.text) != "!!!" || s.settled() != 3 || !slices.Equal(s.ends, []int{1, 2, 3}) {
		t.Errorf("finish %q text %q ends %v", s.finish, s.text, s.ends)
	}
}

// TestShared: only equal tokens and whole, equal images are shared.
func TestShared(t *testing.T) {
	image := func(at, n int, key byte) promptImage {
		return promptImage{grid: [3]int32{1, 2, int32(2 * n)}, offset: at, tokens: n, key: [32]byte{key}}
	}
	p := &prompt{ids: []int32{1, 2, 9, 9, 9, 3, 4, 9, 9, 5}, images: []promptImage{image(2, 3, 1), image(7, 2, 2)}}
	for what, c := range map[string]struct {
		ids    []int32
		images []promptImage
		want   int
	}{
		"all but the last":  {p.ids, p.images, 9},
		"longer":            {append(slices.Clone(p.ids), 6, 7), p.images, 9},
		"nothing":           {[]int32{7}, nil, 0},
		"empty":             {nil, nil, 0},
		"before an image":   {[]int32{1, 2, 8}, nil, 2},
		"cut in an image":   {[]int32{1, 2, 9, 9}, p.images[:1], 2},
		"another image":     {p.ids, []promptImage{image(2, 3, 7), p.images[1]}, 2},
		"another second":    {p.ids, []promptImage{p.images[0], image(7, 2, 7)}, 7},
		"image was missing": {p.ids[:7], nil, 2},
		"up to the second":  {p.ids[:7], p.images[:1], 7},
	} {
		if got := shared(p, c.ids, c.images); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := lossyText([]byte("a\"\\\n\r\t\x00\x1f\x7fé😀\xff\u2028")); got != `a\"\\\n\r\t\u0000\u001f\u007fé😀`+"\ufffd\u2028" {
		t.Error(got)
	}
}
