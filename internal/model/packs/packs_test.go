package packs

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
)

// double is a Work whose vector of n is n and 2n; every pack is noted.
func double(note func(items []int)) Work[int] {
	return Work[int]{Dim: 2, Room: 100, Most: 7, Size: func(n int) int { return n },
		Begin: func(items []int) ([]float32, func()) {
			note(items)
			vecs := make([]float32, 2*len(items))
			return vecs, func() {
				for i, n := range items {
					vecs[2*i], vecs[2*i+1] = float32(n), float32(2*n)
				}
			}
		}}
}

func TestLine(t *testing.T) {
	packs := 0
	l := Start(double(func(items []int) {
		sum := 0
		for _, n := range items {
			sum += n
		}
		if packs++; sum > 100 || len(items) > 7 || len(items) == 0 {
			t.Errorf("a pack of %v", items)
		}
	}))
	var wait sync.WaitGroup
	for seed := range uint64(20) {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			items := make([]int, r.IntN(30))
			for i := range items {
				items[i] = 1 + r.IntN(100)
			}
			v, err := l.Do(items)
			if err != nil || len(v) != 2*len(items) {
				t.Errorf("%d numbers of %d items: %v", len(v), len(items), err)
				return
			}
			for i, n := range items {
				if v[2*i] != float32(n) || v[2*i+1] != float32(2*n) {
					t.Errorf("item %d, %d, got %v", i, n, v[2*i:2*i+2])
				}
			}
		})
	}
	wait.Wait()
	l.Close()
	l.Close()
	if _, err := l.Do([]int{1}); fail.KindOf(err) != fail.Bug {
		t.Errorf("a closed line: %v", err)
	}
	if packs == 0 {
		t.Error("nothing was begun")
	}
}

// While one pack is computed the next is filled: with the first held back, what comes
// meanwhile makes whole packs.
func TestFillsWhileBusy(t *testing.T) {
	hold, begun := make(chan struct{}), make(chan int, 100)
	l := Start(Work[int]{Dim: 1, Room: 10, Most: 10, Size: func(int) int { return 1 }, Begin: func(items []int) ([]float32, func()) {
		begun <- len(items)
		return make([]float32, len(items)), func() { <-hold }
	}})
	var wait sync.WaitGroup
	one := func() {
		wait.Go(func() {
			if _, err := l.Do([]int{1}); err != nil {
				t.Error(err)
			}
		})
	}
	one()
	if n := <-begun; n != 1 {
		t.Errorf("the first pack has %d items", n)
	}
	for range 10 {
		one()
	}
	if n := <-begun; n != 10 {
		t.Errorf("the second pack has %d items", n)
	}
	close(hold)
	wait.Wait()
	l.Close()
}

// A fault is the error of those in its pack, and the line goes on.
func TestFault(t *testing.T) {
	var n atomic.Int32
	w := double(func([]int) {
		if n.Add(1) == 1 {
			panic(&cuda.Fault{Err: fail.New(fail.Service, "multiply", "", "gone")})
		}
	})
	begin := w.Begin
	w.Begin = func(items []int) ([]float32, func()) {
		v, wait := begin(items)
		if n.Load() == 2 {
			return v, func() { panic(&cuda.Fault{Err: fail.New(fail.Service, "wait", "", "gone")}) }
		}
		return v, wait
	}
	l := Start(w)
	defer l.Close()
	for range 2 {
		if _, err := l.Do([]int{1, 2}); fail.KindOf(err) != fail.Service {
			t.Errorf("error %v", err)
		}
	}
	if v, err := l.Do([]int{1, 2}); err != nil || len(v) != 4 {
		t.Errorf("after it: %v, %v", v, err)
	}
}
