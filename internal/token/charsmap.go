package token

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsmap is SentencePiece's compiled normalisation: a Darts double array from
// character sequences to offsets in a block of NUL-terminated replacements.
type charsmap struct {
	units []uint32
	texts []byte
	ascii [utf8.RuneSelf]struct {
		to  string
		has bool
	}
}

var errCharsmap = errors.New("precompiled_charsmap is damaged")

// readCharsmap reads the serialised form: size of the array in bytes, the array,
// the replacements.
func readCharsmap(b []byte) (*charsmap, error) {
	if len(b) < 4 {
		return nil, errCharsmap
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n%4 != 0 || n == 0 || n > int64(len(b)-4) {
		return nil, errCharsmap
	}
	c := &charsmap{units: make([]uint32, n/4), texts: b[4+n:]}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	if !utf8.Valid(c.texts) {
		return nil, errCharsmap
	}
	for i := range c.ascii {
		c.ascii[i].to, c.ascii[i].has = c.find(string(rune(i)))
	}
	return c, nil
}

// find returns the replacement of the shortest beginning of s that has one.
func (c *charsmap) find(s string) (string, bool) {
	pos := uint32(0)
	unit := c.units[0]
	pos ^= darts(unit)
	for i := range len(s) {
		b := uint32(s[i])
		if b == 0 {
			break
		}
		pos ^= b
		if int64(pos) >= int64(len(c.units)) {
			break
		}
		if unit = c.units[pos]; unit&(1<<31|0xff) != b {
			break
		}
		pos ^= darts(unit)
		if unit>>8&1 == 1 {
			if int64(pos) >= int64(len(c.units)) {
				break
			}
			from := int(c.units[pos] & (1<<31 - 1))
			to := from
			for to < len(c.texts) && c.texts[to] != 0 {
				to++
			}
			if from > len(c.texts) || !utf8.Valid(c.texts[from:to]) {
				break
			}
			return string(c.texts[from:to]), true
		}
	}
	return "", false
}

// darts is the offset that a unit holds.
func darts(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// shortCluster is the length in bytes from which a cluster's characters are
// replaced one by one.
const shortCluster = 6

// apply replaces short clusters as a whole, by the replacement of their shortest
// beginning that has one, and all others character by character. SentencePiece
// itself takes the longest beginning; what models were published with is this.
func (c *charsmap) apply(s string) string {
	out := make([]byte, 0, len(s)+8)
	for i := 0; i < len(s); {
		if b := s[i]; b < utf8.RuneSelf && (i+1 == len(s) || s[i+1] < utf8.RuneSelf && (b != '\r' || s[i+1] != '\n')) {
			if r := &c.ascii[b]; r.has {
				out = append(out, r.to...)
			} else {
				out = append(out, b)
			}
			i++
			continue
		}
		cluster := firstCluster(s[i:])
		i += len(cluster)
		if len(cluster) < shortCluster {
			if to, ok := c.find(cluster); ok {
				out = append(out, to...)
				continue
			}
		}
		for len(cluster) > 0 {
			_, n := utf8.DecodeRuneInString(cluster)
			if to, ok := c.find(cluster[:n]); ok {
				out = append(out, to...)
			} else {
				out = append(out, cluster[:n]...)
			}
			cluster = cluster[n:]
		}
	}
	return string(out)
}

// laterMark is the one mark of at most three bytes that the reference's tables
// (Unicode 16) have and uniseg's (15) have not.
const laterMark = "\u0897"

// firstCluster is the first extended grapheme cluster of s.
func firstCluster(s string) string {
	cluster, rest, _, _ := uniseg.FirstGraphemeClusterInString(s, -1)
	if !strings.HasPrefix(rest, laterMark) || unicode.In([]rune(cluster)[0], unicode.Cc, unicode.Zl, unicode.Zp) {
		return cluster
	}
	n := len(cluster)
	for _, r := range rest {
		if r != '\u0897' && r != '\u200c' && r != '\u200d' && !unicode.Is(unicode.M, r) {
			break
		}
		n += utf8.RuneLen(r)
	}
	return s[:n]
}
