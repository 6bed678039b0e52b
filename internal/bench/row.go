// Package bench is the common form of everything that a benchmark measures: a
// Row, its file (a JSON list) and its table. Programs that measure write one file
// each; the merge command beside this package makes build/bench.json of them.
// What is measured, and how, is the programs' own.
package bench

import (
	"encoding/json"
	"strings"
)

// Row is one figure of ours, alone or against a peer's that did the same job in
// the same run. Zero means "none" for Peer and Bound, and is null in the file.
type Row struct {
	Name     string  `json:"name"` // what was done, and its size
	Unit     string  `json:"unit"` // of Ours and Peer: "MB/s", "ms", "GFLOP/s-core"
	Ours     float64 `json:"ours"`
	Peer     float64 `json:"peer"`
	PeerName string  `json:"peer_name"`
	Bound    float64 `json:"bound"` // the least ratio that the project promises
	Note     string  `json:"note"`
}

// Ratio is how many times better ours is than the peer's: above 1, ours is. It
// is 0 without a peer. More is better in units per second, less in all others.
func (r Row) Ratio() float64 {
	switch {
	case r.Peer == 0 || r.Ours == 0:
		return 0
	case r.Rate():
		return r.Ours / r.Peer
	}
	return r.Peer / r.Ours
}

// Rate tells work per second ("MB/s", "GFLOP/s-core") from cost ("s", "MB", "ns/op").
func (r Row) Rate() bool {
	_, per, _ := strings.Cut(r.Unit, "/")
	return per == "s" || strings.HasPrefix(per, "s-")
}

// Below says that a promise is broken.
func (r Row) Below() bool { return r.Peer != 0 && r.Ratio() < r.Bound }

// MarshalJSON writes the row with its ratio; what is not known is null.
func (r Row) MarshalJSON() ([]byte, error) {
	known := func(v float64) *float64 {
		if v == 0 {
			return nil
		}
		return &v
	}
	return json.Marshal(struct {
		Name     string   `json:"name"`
		Unit     string   `json:"unit"`
		Ours     float64  `json:"ours"`
		Peer     *float64 `json:"peer"`
		PeerName string   `json:"peer_name"`
		Ratio    *float64 `json:"ratio"`
		Bound    *float64 `json:"bound"`
		Note     string   `json:"note"`
	}{r.Name, r.Unit, r.Ours, known(r.Peer), r.PeerName, known(r.Ratio()), known(r.Bound), r.Note})
}
