package ranks

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/tensor"
)

// together runs f as every rank of n.
func together(n int, f func(g Group) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for r, g := range Local(n) {
		all.Go(func() {
			defer Guard(&errs[r])
			errs[r] = f(g)
		})
	}
	all.Wait()
	return errs
}

func TestLocal(t *testing.T) {
	for n := 1; n <= 4; n++ {
		errs := together(n, func(g Group) error {
			for round := range 50 {
				r := g.Rank()
				for k, b := range g.Gather([]byte{byte(r), byte(round)}) {
					if b[0] != byte(k) || b[1] != byte(round) {
						return fmt.Errorf("round %d: %d brought %v", round, k, b)
					}
				}
				x := []float64{float64(r + 1), .1}
				Sum(g, x)
				if want := float64(n*(n+1)) / 2; x[0] != want {
					return fmt.Errorf("the sum is %g, want %g", x[0], want)
				}
				if Any(g, r == 2 && round == 7) != (n > 2 && round == 7) {
					return errors.New("Any is wrong")
				}
				var parts []Part
				for owner := range n {
					parts = append(parts, Part{tensor.FromHost([]float32{float32(r), float32(10 * owner)}), owner})
				}
				g.Reduce(tensor.CPU, parts)
				own := parts[r].T.Host()
				if own[0] != float32(n*(n-1)/2) || own[1] != float32(10*r*n) {
					return fmt.Errorf("rank %d has %v", r, own)
				}
				g.Broadcast(tensor.CPU, parts)
				for owner, p := range parts {
					if x := p.T.Host(); x[0] != float32(n*(n-1)/2) || x[1] != float32(10*owner*n) {
						return fmt.Errorf("rank %d has %v of %d", r, x, owner)
					}
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

func TestLocalFails(t *testing.T) {
	errs := together(3, func(g Group) error {
		if g.Rank() == 1 {
			err := fail.New(fail.Disk, "save", "", "no room")
			g.Abort(err)
			return err
		}
		g.Gather(nil)
		return nil
	})
	for r, err := range errs {
		if fail.KindOf(err) != fail.Disk || !strings.Contains(err.Error(), "no room") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	errs = together(2, func(g Group) error {
		g.Reduce(tensor.CPU, make([]Part, g.Rank()))
		return nil
	})
	for r, err := range errs {
		if fail.KindOf(err) != fail.Bug || !strings.Contains(err.Error(), "other parts") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestShare(t *testing.T) {
	sizes := []int{5, 64, 0, 1000, 3, 24}
	total := 0
	for _, n := range sizes {
		total += n
	}
	for n := 1; n <= 7; n++ {
		at, held := 0, make([]int, n)
		for _, size := range sizes {
			cuts := Share(at, size, total, n)
			if cuts[0] != 0 || cuts[n] != size {
				t.Fatalf("cuts %v of %d", cuts, size)
			}
			for r := range n {
				if cuts[r+1] < cuts[r] || r > 0 && cuts[r]%8 != 0 && cuts[r] != size {
					t.Fatalf("cuts %v of %d", cuts, size)
				}
				held[r] += cuts[r+1] - cuts[r]
			}
			at += size
		}
		for r, h := range held {
			if h < total/n-16 || h > total/n+16 {
				t.Errorf("rank %d of %d has %d of %d values", r, n, h, total)
			}
		}
	}
}
