package live

import "testing"

// Hits without a title, or without a link, keep what they have: no hit gets the link of
// another one.
func TestG38HitsKeepTheirOwnLinks(t *testing.T) {
	body := `{"searchParameters":{},"organic":[{"link":"https://a.test/"},{"title":"B","snippet":"of b"},{"title":"C","link":"https://c.test/"}]}`
	a, err := readSerper(Ask{Kind: Web, K: 3}, []byte(body))
	if err != nil || len(a.Found) != 3 {
		t.Fatal(a, err)
	}
	want := []Found{{Link: "https://a.test/"}, {Title: "B", Snippet: "of b"}, {Title: "C", Link: "https://c.test/"}}
	for i, f := range a.Found {
		if f != want[i] || f.hit().Link != want[i].Link {
			t.Errorf("hit %d: %+v", i, f)
		}
	}
}
