package shard

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"searchloop/internal/fail"
)

// Set is a sorted list of shard numbers, without repetition.
type Set []int

// Has says whether i is in the set.
func (s Set) Has(i int) bool {
	_, ok := slices.BinarySearch(s, i)
	return ok
}

func (s Set) String() string { return Ranges(s) }

// ParseRanges reads what Ranges writes: "1,3-7".
func ParseRanges(text string) (Set, error) {
	var set Set
	bad := func() (Set, error) {
		return nil, fail.New(fail.Usage, "read shards", "", "%q is no list of shards such as 1,3-7", text)
	}
	for _, f := range strings.Split(text, ",") {
		a, b, isRange := strings.Cut(f, "-")
		lo, err := strconv.Atoi(a)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.Atoi(b)
		}
		if err != nil || lo < 0 || hi < lo || hi >= Max || len(set) > 0 && lo <= set[len(set)-1] {
			return bad()
		}
		for i := lo; i <= hi; i++ {
			set = append(set, i)
		}
	}
	return set, nil
}

// List says which shards the tasks of an array job make, by the task's index.
type List map[int]Set

// Text is the file form of a list for N shards: "shards N" and a line
// "TASK RANGES" a task.
func (l List) Text(n int) []byte {
	b := fmt.Appendf(nil, "shards %d\n", n)
	for _, t := range slices.Sorted(maps.Keys(l)) {
		b = fmt.Appendf(b, "%d %s\n", t, Ranges(l[t]))
	}
	return b
}

// ReadList reads the file form of a list, which must be one for n shards.
func ReadList(path string, n int) (List, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read shard list", path, err)
	}
	defer f.Close()
	l, lines := List{}, bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	bad := func(row int64, format string, args ...any) (List, error) {
		e := fail.New(fail.BadInput, "read shard list", path, format, args...)
		e.Row = row
		return nil, e
	}
	for row := int64(1); lines.Scan(); row++ {
		a, b, _ := strings.Cut(lines.Text(), " ")
		if row == 1 {
			if a != "shards" || b != strconv.Itoa(n) {
				return bad(row, "%q is not %q", lines.Text(), fmt.Sprintf("shards %d", n))
			}
			continue
		}
		t, err := strconv.Atoi(a)
		if err != nil || t < 0 {
			return bad(row, "%q is no task", a)
		}
		set, err := ParseRanges(b)
		switch {
		case err != nil:
			return bad(row, "%w", err)
		case set[len(set)-1] >= n:
			return bad(row, "shard %d is not one of %d", set[len(set)-1], n)
		case l[t] != nil:
			return bad(row, "task %d is there twice", t)
		}
		l[t] = set
	}
	if err := lines.Err(); err != nil {
		return bad(0, "%w", err)
	}
	if len(l) == 0 {
		return bad(0, "no task in it")
	}
	return l, nil
}
