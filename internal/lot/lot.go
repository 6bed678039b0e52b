// Package lot makes the numbers by which rows are drawn and seeds are set: the same
// for the same seed and text, whatever the order and whoever asks.
package lot

import (
	"crypto/sha256"
	"encoding/binary"
)

// Draw gives the first 64 bits, big end first, of the SHA-256 of domain, a zero byte,
// the numbers as 8 bytes each, little end first, and text. Domain keeps apart what
// is drawn for different ends.
func Draw(domain, text string, numbers ...uint64) uint64 {
	b := append([]byte(domain), 0)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	sum := sha256.Sum256(append(b, text...))
	return binary.BigEndian.Uint64(sum[:8])
}
