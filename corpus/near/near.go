// Package near finds texts that are nearly the same: equal but for case and
// punctuation, or with most of their parts in common. Texts go in, pairs come out.
// It says nothing of what texts mean.
package near

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
)

// Set are the hashes of a text's parts, sorted, each once.
type Set []uint64

// Plain is a text without case, punctuation and repeated space.
func Plain(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }), " ")
}

// Words are the pairs of neighbouring words of a plain text.
func Words(plain string) Set {
	words := strings.Fields(plain)
	if len(words) == 1 {
		words = append(words, "")
	}
	var out Set
	for i := 1; i < len(words); i++ {
		out = append(out, Hash(words[i-1]+" "+words[i]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Grams are the runs of three characters of a plain text, its ends marked: they
// tell an edited word from another one, which word pairs do not.
func Grams(plain string) Set {
	r := []rune(" " + plain + " ")
	var out Set
	for i := 0; i+3 <= len(r); i++ {
		out = append(out, Hash(string(r[i:i+3])))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Hash is FNV-1a with a final mix: the same in every process.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Jaccard is the share of the parts of two sets that both have.
func Jaccard(a, b Set) float64 {
	both := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			both++
			i++
			j++
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	if len(a)+len(b) == both {
		return 1
	}
	return float64(both) / float64(len(a)+len(b)-both)
}

// A text is compared with those that share one of Bands groups of rows minimal
// hashes with it (Broder 1997): at a similarity of 0.8 the chance to miss one is
// 0.02 %.
const (
	Bands = 16
	rows  = 4
)

// Signature gives the keys of the bands of a set.
func Signature(set Set) [Bands]uint64 {
	var out [Bands]uint64
	var buf [8 * rows]byte
	for b := range Bands {
		for r := range rows {
			least := ^uint64(0)
			seed := mix(uint64(b*rows+r) + 1)
			for _, x := range set {
				least = min(least, mix(x^seed))
			}
			binary.LittleEndian.PutUint64(buf[8*r:], least)
		}
		out[b] = Hash(string(buf[:]))
	}
	return out
}
