// Package shard says which part of a dataset a process makes: shard I of N. It
// assigns keys or row ranges to shards and names the files. The assignment
// depends on the key and N alone, never on order, host or time. It reads nothing.
package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"searchloop/internal/fail"
)

// Max bounds N: names hold five digits.
const Max = 100000

// Spec is shard I of N, counted from zero. The zero value is not valid; the whole
// dataset in one shard is {0, 1}.
type Spec struct{ I, N int }

// Parse reads "3/16". I counts from zero, so that an array task's index is I.
func Parse(s string) (Spec, error) {
	a, b, ok := strings.Cut(s, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	sp := Spec{i, n}
	if !ok || err1 != nil || err2 != nil || !sp.Valid() {
		return Spec{}, &fail.Error{Kind: fail.Usage, Op: "--shard", Err: fmt.Errorf("%q is not a shard", s), Hint: "write I/N with 0 <= I < N, for example 3/16"}
	}
	return sp, nil
}

// Valid says whether 0 <= I < N <= Max.
func (s Spec) Valid() bool { return s.I >= 0 && s.I < s.N && s.N <= Max }

func (s Spec) String() string { return fmt.Sprintf("%d/%d", s.I, s.N) }

// Owns says whether the shard makes the row of that key: the first eight bytes
// of SHA-256(key), big endian, modulo N, equal I.
func (s Spec) Owns(key string) bool {
	if s.N == 1 {
		return true
	}
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(h[:8])%uint64(s.N) == uint64(s.I)
}

// Range is the shard's rows [lo, hi) of n, for datasets whose order matters: the
// ranges of all shards follow each other and differ in length by at most one.
func (s Spec) Range(n int64) (lo, hi int64) {
	size, rest := n/int64(s.N), n%int64(s.N)
	i := int64(s.I)
	lo = i*size + min(i, rest)
	hi = lo + size
	if i < rest {
		hi++
	}
	return lo, hi
}

// Name is the shard's file name: Name("part", "parquet") is
// "part-00003-of-00016.parquet". An empty ext gives the bare stem.
func (s Spec) Name(prefix, ext string) string {
	if ext != "" {
		ext = "." + ext
	}
	return fmt.Sprintf("%s-%05d-of-%05d%s", prefix, s.I, s.N, ext)
}

// FromName finds the shard in a name made by Name.
func FromName(name string) (prefix string, s Spec, ext string, ok bool) {
	stem, ext, _ := strings.Cut(name, ".")
	f := strings.Split(stem, "-")
	if len(f) < 4 || f[len(f)-2] != "of" || len(f[len(f)-3]) != 5 || len(f[len(f)-1]) != 5 {
		return "", Spec{}, "", false
	}
	i, err1 := strconv.Atoi(f[len(f)-3])
	n, err2 := strconv.Atoi(f[len(f)-1])
	s = Spec{i, n}
	return strings.Join(f[:len(f)-3], "-"), s, ext, err1 == nil && err2 == nil && s.Valid()
}

// Ranges writes sorted numbers compactly, as Slurm's --array reads them: "1,3-7".
func Ranges(sorted []int) string {
	var b strings.Builder
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(sorted[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(sorted[j]))
		}
		i = j + 1
	}
	return b.String()
}
