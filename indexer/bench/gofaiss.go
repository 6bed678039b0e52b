package main

import (
	"context"
	"fmt"
	"regexp"

	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
)

// throughFAISS adds the search of the float32 file by FAISS itself, in this
// process with the threads that package faiss gives it, where it was built in.
func throughFAISS(ctx context.Context, path string, queries []float32, pattern *regexp.Regexp, ours []measured) ([]measured, error) {
	if faiss.Available() != nil {
		return ours, nil
	}
	set, err := faiss.OpenSet([]string{path}, faiss.Effort{})
	if err != nil {
		return nil, err
	}
	defer set.Close()
	for _, n := range []int{1, 16, 256} {
		name := fmt.Sprintf("search float32 through go-faiss, batch %d", n)
		if !pattern.MatchString(name) {
			continue
		}
		m := measured{batch: n, peers: []string{installed}, bounds: map[string]float64{installed: map[int]float64{16: 3, 256: 1.5}[n]}}
		runs := 3 // as the peers
		if n < 16 {
			runs = 12
		}
		t, err := best(runs, func() error {
			_, err := set.SearchRange(ctx, queries[:n*(*dim)], topK, faiss.Effort{}, flat.All)
			return err
		})
		if err != nil {
			return nil, err
		}
		m.Name, m.Unit, m.Ours = name, "queries/s", float64(n)/t.Seconds()
		m.Note = fmt.Sprintf("%d x %d, k %d", *rows, *dim, topK)
		ours = append(ours, m)
	}
	return ours, nil
}
