package journal

import (
	"bufio"
	"math"
	"os"

	"searchloop/internal/fail"
)

// Count is the number of keys in a journal that another process may be writing: it
// reads, and changes nothing. What is not whole at the end is not counted.
func Count(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fail.Wrap(fail.BadInput, "read journal", path, err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	if _, err := r.Discard(len(magic)); err != nil {
		return 0, nil
	}
	keys := map[string]bool{}
	for {
		key, _, _, err := readRecord(r, math.MaxInt64)
		if err != nil {
			return len(keys), nil
		}
		if key != "" { // not the header
			keys[key] = true
		}
	}
}
