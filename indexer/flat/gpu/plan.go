package gpu

import (
	"fmt"

	"searchloop/internal/fail"
)

const (
	group   = 1024 // queries searched at a time
	maxK    = 1024
	room    = 7168      // candidates of a query between two selections; with the best before them at most 8192
	passing = 512 << 20 // bytes of rows that pass through at a time
)

// plan is what of each GPU's memory an index takes.
type plan struct {
	resident int64 // rows of the part that are held
	passing  int64 // rows of the part that pass through at every search
	chunk    int64 // of them at a time

	rows, copy, work, buffer int64 // bytes: rows, their copy for the scan, a group of queries, rows that pass
}

func (p plan) bytes() int64 { return p.rows + p.copy + p.work + p.buffer }

// workBytes is what a group of queries takes, candidates and results included.
func workBytes(dim int) int64 {
	n := int64(group)
	return n*(4*int64(dim)+pitchOf(dim, f32)+4+16+4+4+room*8+maxK*8) + int64(8*dim) + 4096
}

// planFor plans a part of rows in the given memory. What is scanned as a copy is
// never passed through: reading it once would save less than making it costs.
func planFor(rows int64, dim int, stored, scan kind, copied bool, memory int64) (plan, error) {
	pitch := pitchOf(dim, stored)
	p := plan{resident: rows, rows: rows * pitch, work: workBytes(dim)}
	if copied {
		p.copy = rows * pitchOf(dim, scan)
	}
	if p.bytes() <= memory {
		return p, nil
	}
	p.copy, p.chunk = 0, max(1, min(passing/pitch, rows))
	p.buffer = p.chunk * pitch
	if p.resident = (memory - p.work - p.buffer) / pitch; memory < p.work+p.buffer {
		return plan{}, fail.WithHint(fail.New(fail.Usage, "plan GPU memory", "", "searching takes %s and %s for rows that pass through, and %s are free for it", size(p.work), size(p.buffer), size(memory)),
			"end what else runs on the GPU, choose another (cuda:N), or search on the CPU")
	}
	if p.resident >= rows { // without the copy it fits
		p.resident, p.chunk, p.buffer = rows, 0, 0
	}
	p.passing = rows - p.resident
	p.rows = p.resident * pitch
	return p, nil
}

func size(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
}
