package main

import (
	"fmt"
	"net/http"
)

// requests is how many turns and verdicts the backend was asked for.
func requests(url string) (n int, err error) {
	resp, err := http.Get(url + "/requests")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = fmt.Fscan(resp.Body, &n)
	return n, err
}

// seconds is a heap of times.
type seconds []float64

func (s seconds) Len() int           { return len(s) }
func (s seconds) Less(i, j int) bool { return s[i] < s[j] }
func (s seconds) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *seconds) Push(x any)        { *s = append(*s, x.(float64)) }
func (s *seconds) Pop() any          { n := len(*s) - 1; x := (*s)[n]; *s = (*s)[:n]; return x }
