package protocol

import "strings"

// gram is the length of the runs of characters that are counted.
const gram = 30

// Repeats says whether a text goes round in circles: it has more than words words,
// and less than share of its runs of 30 characters are different ones. A share of 0
// finds none.
func Repeats(text string, share float64, words int) bool {
	if share <= 0 || len(text) < gram || len(strings.Fields(text)) <= words {
		return false
	}
	// The bounds of characters, so that every run is a slice of the text.
	var at []int
	for i := range text {
		at = append(at, i)
	}
	at = append(at, len(text))
	n := len(at) - gram
	if n <= 0 {
		return false
	}
	seen := make(map[string]struct{}, n)
	for i := range n {
		seen[text[at[i]:at[i+gram]]] = struct{}{}
	}
	return float64(len(seen)) < share*float64(n)
}
