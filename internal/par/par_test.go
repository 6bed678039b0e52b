package par

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func withCores(t *testing.T, n int) {
	old := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

func TestForCoversEveryItemOnce(t *testing.T) {
	for _, cores := range []int{1, 2, 7} {
		withCores(t, cores)
		for _, n := range []int{0, 1, 2, 3, 15, 16, 17, 1000, 4097} {
			for _, grain := range []int{0, 1, 3, 16, 5000} {
				seen := make([]atomic.Int32, n)
				For(n, grain, func(lo, hi int) {
					if lo >= hi || hi > n || lo%max(grain, 1) != 0 {
						t.Errorf("n %d grain %d: range [%d, %d)", n, grain, lo, hi)
					}
					for i := lo; i < hi; i++ {
						seen[i].Add(1)
					}
				})
				for i := range seen {
					if seen[i].Load() != 1 {
						t.Fatalf("cores %d n %d grain %d: item %d done %d times", cores, n, grain, i, seen[i].Load())
					}
				}
			}
		}
	}
}

func TestChunksAreTheSameOnAnyMachine(t *testing.T) {
	for _, cores := range []int{1, 3} {
		withCores(t, cores)
		var mu sync.Mutex
		got := map[int][2]int{}
		Chunks(1001, 100, func(c, lo, hi int) {
			mu.Lock()
			defer mu.Unlock()
			got[c] = [2]int{lo, hi}
		})
		if len(got) != 11 || got[0] != [2]int{0, 100} || got[10] != [2]int{1000, 1001} {
			t.Fatalf("cores %d: %v", cores, got)
		}
	}
}

func TestNestedLoopsRunInline(t *testing.T) {
	withCores(t, 4)
	var total atomic.Int64
	For(64, 1, func(lo, hi int) {
		for range hi - lo {
			calls := 0 // not atomic: the race detector proves the promise
			For(100, 1, func(lo, hi int) { calls++; total.Add(int64(hi - lo)) })
			if calls != 1 {
				t.Errorf("nested loop was cut into %d ranges", calls)
			}
		}
	})
	if total.Load() != 6400 {
		t.Fatalf("did %d items", total.Load())
	}
}

func TestConcurrentCallers(t *testing.T) {
	withCores(t, 4)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				var sum atomic.Int64
				For(1000, 10, func(lo, hi int) {
					for i := lo; i < hi; i++ {
						sum.Add(int64(i))
					}
				})
				if sum.Load() != 499500 {
					t.Errorf("sum %d", sum.Load())
				}
			}
		})
	}
	wg.Wait()
}

func TestPanicReachesTheCaller(t *testing.T) {
	withCores(t, 4)
	cause := errors.New("row is bad")
	for range 50 {
		func() {
			defer func() {
				p, ok := recover().(*Panic)
				if !ok || !errors.Is(p, cause) {
					t.Errorf("recovered %v", p)
				}
			}()
			For(100, 1, func(lo, hi int) {
				if lo <= 50 && 50 < hi {
					panic(cause)
				}
			})
			t.Error("no panic")
		}()
	}
	// The pool still works, and the lock is free.
	var n atomic.Int64
	For(100, 1, func(lo, hi int) { n.Add(int64(hi - lo)) })
	if n.Load() != 100 {
		t.Fatal("loop after a panic is not whole")
	}
}

func TestGoexitInABodyDoesNotHang(t *testing.T) {
	withCores(t, 4)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		For(100, 1, func(lo, hi int) { runtime.Goexit() })
	}()
	<-done
	var n atomic.Int64
	For(100, 1, func(lo, hi int) { n.Add(int64(hi - lo)) })
	if n.Load() != 100 {
		t.Fatal("loop after a Goexit is not whole")
	}
}

type counter struct{ n atomic.Int64 }

func (c *counter) Do(lo, hi int) { c.n.Add(int64(hi - lo)) }

func TestRunDoesNotAllocate(t *testing.T) {
	withCores(t, 2)
	c := &counter{}
	Run(100, 1, c)
	if a := testing.AllocsPerRun(200, func() { Run(100, 1, c) }); a >= 1 {
		t.Errorf("%v allocations a loop", a)
	}
}

func BenchmarkEmptyLoop(b *testing.B) {
	c := &counter{}
	for b.Loop() {
		Run(2, 1, c)
	}
}
