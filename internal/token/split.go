package token

import "unicode/utf8"

// pattern is one family of pre-tokenizer regular expressions, scanned by hand.
// The families differ only in what these fields say:
//
//	GPT-2   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//	Qwen2   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//	Llama 3 as Qwen2 with \p{N}{1,3}
//	Qwen3.5 as Qwen2 with [\p{L}\p{M}]+ and [^\s\p{L}\p{M}\p{N}]+
type pattern struct {
	gpt2   bool // GPT-2's family; the other fields are then meaningless
	digits int  // numbers are cut after this many
	marks  bool // marks are part of words
}

const (
	gpt2Regex  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	qwenRegex  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llamaRegex = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	markRegex  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var patterns = map[string]pattern{
	gpt2Regex:  {gpt2: true},
	qwenRegex:  {digits: 1},
	llamaRegex: {digits: 3},
	markRegex:  {digits: 1, marks: true},
}

// next returns the length in bytes of the first piece of s, which is valid
// UTF-8 and not empty.
func (p pattern) next(s string) int {
	if s[0] == '\'' {
		if n := contraction(s, !p.gpt2); n > 0 {
			return n
		}
	}
	c, w := p.class(s)
	if p.gpt2 {
		return p.nextGPT2(s, c, w)
	}
	// One character that is neither letter, number nor line end may lead a word.
	if c == letter {
		return w + p.run(s[w:], letter)
	}
	if c != number && c != newline {
		if n := p.run(s[w:], letter); n > 0 {
			return w + n
		}
	}
	switch {
	case c == number:
		for i := 1; i < p.digits && w < len(s); i++ {
			d, n := p.class(s[w:])
			if d != number {
				break
			}
			w += n
		}
		return w
	case c == other:
		w += p.run(s[w:], other)
	case s[0] == ' ' && p.run(s[1:], other) > 0:
		w += p.run(s[w:], other)
	default:
		return p.blanks(s, true)
	}
	for w < len(s) && (s[w] == '\r' || s[w] == '\n') {
		w++
	}
	return w
}

func (p pattern) nextGPT2(s string, c uint8, w int) int {
	if c == space || c == newline {
		if s[0] != ' ' || len(s) == 1 {
			return p.blanks(s, false)
		}
		if c, _ = p.class(s[1:]); c == space || c == newline {
			return p.blanks(s, false)
		}
	}
	return w + p.run(s[w:], c)
}

// blanks cuts a run of white space. When lines count it ends after the run's
// last line end; otherwise the last blank is left to the word that follows.
func (p pattern) blanks(s string, lines bool) int {
	i, last, lastLine := 0, 0, 0
	for i < len(s) {
		c, w := p.class(s[i:])
		if c != space && c != newline {
			break
		}
		last = i
		i += w
		if c == newline {
			lastLine = i
		}
	}
	switch {
	case lines && lastLine > 0:
		return lastLine
	case i == len(s) || last == 0:
		return i
	}
	return last
}

// run returns the length of the longest prefix of s whose runes are all of class c.
func (p pattern) run(s string, c uint8) int {
	i := 0
	for i < len(s) {
		d, w := p.class(s[i:])
		if d != c {
			break
		}
		i += w
	}
	return i
}

func (p pattern) class(s string) (uint8, int) {
	r, w := rune(s[0]), 1
	if r >= utf8.RuneSelf {
		r, w = utf8.DecodeRuneInString(s)
	}
	var c uint8
	if r < 0x20000 {
		c = planes()[r]
	} else {
		c = classify(r)
	}
	if c == mark {
		if c = other; p.marks {
			c = letter
		}
	}
	return c, w
}

// contraction returns the length of an English contraction at the start of s
// ("'s", "'ll"), in any case when fold is set; 0 when there is none. U+017F, the
// long s, folds to s.
func contraction(s string, fold bool) int {
	if len(s) < 2 {
		return 0
	}
	a := s[1]
	if fold {
		if len(s) >= 3 && s[1] == 0xc5 && s[2] == 0xbf {
			return 3
		}
		a |= 0x20
	}
	switch a {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	b := s[2]
	if fold {
		b |= 0x20
	}
	if a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l' {
		return 3
	}
	return 0
}
