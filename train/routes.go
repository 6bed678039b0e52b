package train

import (
	"encoding/binary"
	"fmt"
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/journal"
)

// Ways to route the tokens of a policy with experts in update passes.
const (
	ReplayOld = ""    // through the experts of the pass that computed old log-probs, where there is one
	ReplayOff = "off" // as the present router chooses
)

// router is a Pass of a policy with experts: Routes has, for each layer, so many
// experts a token, or nil; see qwenvl.Batch.
type router interface{ Routes() [][]int32 }

// routesOf are the routes of a pass; nil when nothing was routed.
func routesOf(pass Pass) [][]int32 {
	r, ok := pass.(router)
	if !ok {
		return nil
	}
	all := r.Routes()
	for _, layer := range all {
		if layer != nil {
			return all
		}
	}
	return nil
}

// appendRoutes writes tokens [from, to) of n: the number of layers, and for each
// layer its experts a token, 0 where it has none, and their numbers, all in 16
// bits; 65535 stands for a token that was not routed.
func appendRoutes(b []byte, all [][]int32, from, to, n int) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(all)))
	for _, layer := range all {
		k := len(layer) / n
		b = binary.LittleEndian.AppendUint16(b, uint16(k))
		for _, x := range layer[from*k : to*k] {
			b = binary.LittleEndian.AppendUint16(b, uint16(x))
		}
	}
	return b
}

// readRoutes appends to all, layer by layer, what appendRoutes wrote of tokens
// tokens.
func readRoutes(all [][]int32, b []byte, tokens int) ([][]int32, error) {
	bad := fmt.Errorf("routes of %d bytes for %d tokens", len(b), tokens)
	next := func() (int, bool) {
		if len(b) < 2 {
			return 0, false
		}
		x := binary.LittleEndian.Uint16(b)
		b = b[2:]
		return int(x), true
	}
	layers, ok := next()
	if !ok || all != nil && len(all) != layers {
		return nil, bad
	}
	if all == nil {
		all = make([][]int32, layers)
	}
	for i := range all {
		k, ok := next()
		if !ok || len(b) < 2*k*tokens {
			return nil, bad
		}
		for range k * tokens {
			x, _ := next()
			if x == math.MaxUint16 {
				x = -1
			}
			all[i] = append(all[i], int32(x))
		}
	}
	if len(b) > 0 {
		return nil, bad
	}
	return all, nil
}

// routeBook finds the routes of rows in the journal of their old log-probs. They
// stay on disk: a row of 10,000 tokens through 48 layers of 8 experts has 8 MB.
type routeBook struct {
	j    *journal.Journal
	path string
}

// openRoutes opens the journal that a scorer has filled; nil when it has no
// routes.
func openRoutes(path, header string, rows []*Sequence) (*routeBook, error) {
	j, err := journal.Open(path, header)
	if err != nil {
		return nil, err
	}
	if payload, ok := j.Get(rows[0].ID); !ok || len(payload) <= 4*rows[0].Trained {
		return nil, j.Close()
	}
	return &routeBook{j, path}, nil
}

// of are the routes of packed rows.
func (r *routeBook) of(rows []*Sequence) (all [][]int32, err error) {
	for _, s := range rows {
		payload, ok := r.j.Get(s.ID)
		if !ok || len(payload) < 4*s.Trained {
			return nil, fail.WithHint(fail.New(fail.Disk, "read routes", r.path, "those of row %s are gone", s.ID), "run again with --fresh")
		}
		if all, err = readRoutes(all, payload[4*s.Trained:], len(s.Tokens)); err != nil {
			return nil, fail.WithHint(fail.Wrap(fail.Disk, "read routes", r.path, err), "run again with --fresh")
		}
	}
	return all, nil
}

func (r *routeBook) close() error {
	if r == nil {
		return nil
	}
	return r.j.Close()
}
