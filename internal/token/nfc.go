package token

import (
	"slices"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// norm.NFC breaks runs of more than 30 marks with a joiner, which no tokenizer
// expects; hence the algorithm of UAX #15 here, over norm's data.

// nfc returns the canonical composition of s.
func nfc(s string) string {
	if isASCII(s) || norm.NFC.IsNormalString(s) {
		return s
	}
	d := decompose(s)
	// Compose: the last starter takes each mark that nothing between blocks.
	out, starter, last := d[:0], -1, uint8(0)
	for i, r := range d {
		c := combining(r)
		if starter >= 0 && (len(out)-1 == starter || last != 0 && last < c) {
			if p := composed(out[starter], r); p != 0 {
				out[starter] = p
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		last = c
		out = append(out, d[i])
	}
	return string(out)
}

// decompose returns the full canonical decomposition of s in canonical order.
func decompose(s string) []rune {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		p := norm.NFC.PropertiesString(string(r))
		if dec := p.Decomposition(); dec != nil && r != 0x11938 {
			out = append(out, []rune(string(dec))...)
		} else {
			out = append(out, hangulParts(r)...)
		}
	}
	for i := 0; i < len(out); {
		if combining(out[i]) == 0 {
			i++
			continue
		}
		j := i + 1
		for j < len(out) && combining(out[j]) != 0 {
			j++
		}
		slices.SortStableFunc(out[i:j], func(a, b rune) int { return int(combining(a)) - int(combining(b)) })
		i = j
	}
	return out
}

func combining(r rune) uint8 {
	if r < 0x300 || unicode.Is(laterMarks, r) {
		return 0
	}
	return norm.NFC.PropertiesString(string(r)).CCC()
}

const (
	hangulBase = 0xac00
	hangulL    = 0x1100
	hangulV    = 0x1161
	hangulT    = 0x11a7
)

func hangulParts(r rune) []rune {
	n := r - hangulBase
	if n < 0 || n >= 11172 {
		return []rune{r}
	}
	p := []rune{hangulL + n/588, hangulV + n%588/28, hangulT + n%28}
	if n%28 == 0 {
		p = p[:2]
	}
	return p
}

// composed returns the primary composite of a and b, or 0.
func composed(a, b rune) rune {
	if a >= hangulL && a < hangulL+19 && b >= hangulV && b < hangulV+21 {
		return hangulBase + (a-hangulL)*588 + (b-hangulV)*28
	}
	if n := a - hangulBase; n >= 0 && n < 11172 && n%28 == 0 && b > hangulT && b < hangulT+28 {
		return a + b - hangulT
	}
	var buf [2]rune
	c := append(buf[:0], []rune(norm.NFC.String(string(a)+string(b)))...)
	if len(c) != 1 || c[0] == 0x11938 || unicode.Is(laterMarks, b) {
		return 0
	}
	return c[0]
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
