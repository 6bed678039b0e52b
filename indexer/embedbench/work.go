//go:build cuda

package main

import (
	"sync"

	"searchloop/internal/token"
)

// work is the number of tokens of passages, and of floating-point operations of their
// passes: two for every weight of a layer, and the two products of attention.
func (s shape) work(dir string, passages []string) (tokens int, flop float64, err error) {
	words, err := token.LoadMarked(dir)
	if err != nil {
		return 0, 0, err
	}
	weights := float64(4*s.hidden*s.hidden + 2*s.hidden*s.inner)
	var wait sync.WaitGroup
	var mu sync.Mutex
	for lo := 0; lo < len(passages); lo += 1024 {
		wait.Go(func() {
			sum, squares := 0, 0.0
			for _, p := range passages[lo:min(lo+1024, len(passages))] {
				n := len(words.Encode(p, 512))
				sum, squares = sum+n, squares+float64(n)*float64(n)
			}
			mu.Lock()
			defer mu.Unlock()
			tokens += sum
			flop += float64(s.layers) * (2*weights*float64(sum) + 4*squares*float64(s.hidden))
		})
	}
	wait.Wait()
	return tokens, flop, nil
}
