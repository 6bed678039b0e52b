package bench

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

var (
	faster  = Row{Name: "read", Unit: "MB/s", Ours: 200, Peer: 50, PeerName: "json", Bound: 10, Note: "two cores"}
	smaller = Row{Name: "peak memory", Unit: "MB", Ours: 100, Peer: 125, PeerName: "json", Bound: 1}
	alone   = Row{Name: "product", Unit: "GFLOP/s-core", Ours: 97.5, Bound: 0.7, Note: "peer not measured: no Python given"}
)

func TestRatioIsAboveOneWhenOursIsBetter(t *testing.T) {
	for _, c := range []struct {
		row   Row
		ratio float64
		below bool
	}{
		{faster, 4, true}, {smaller, 1.25, false}, {alone, 0, false},
		{Row{Unit: "GFLOP/s-core", Ours: 3, Peer: 2}, 1.5, false},
		{Row{Unit: "s/step", Ours: 3, Peer: 6}, 2, false},
		{Row{Unit: "ns/op", Ours: 8, Peer: 2, Bound: .5}, .25, true},
	} {
		if got := c.row.Ratio(); got != c.ratio || c.row.Below() != c.below {
			t.Errorf("%+v: ratio %v, below %v", c.row, got, c.row.Below())
		}
	}
}

func TestFileHasNullForWhatIsNotKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "rows.json")
	rows := []Row{faster, alone}
	if err := Write(path, rows); err != nil {
		t.Fatal(err)
	}
	want := `[
  {
    "name": "read",
    "unit": "MB/s",
    "ours": 200,
    "peer": 50,
    "peer_name": "json",
    "ratio": 4,
    "bound": 10,
    "note": "two cores"
  },
  {
    "name": "product",
    "unit": "GFLOP/s-core",
    "ours": 97.5,
    "peer": null,
    "peer_name": "",
    "ratio": null,
    "bound": 0.7,
    "note": "peer not measured: no Python given"
  }
]
`
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Fatalf("%v\n%s", err, got)
	}
	if got, err := Read(path); err != nil || !slices.Equal(got, rows) {
		t.Fatalf("%v %+v", err, got)
	}
	if err := Write(path, []Row{{Ours: math.NaN()}}); fail.KindOf(err) != fail.Bug {
		t.Fatalf("no number was written: %v", err)
	}
}

func TestMergeKeepsOrderAndRefusesTwins(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	for path, rows := range map[string][]Row{a: {smaller, alone}, b: {faster}} {
		if err := Write(path, rows); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Merge([]string{b, a}); err != nil || !slices.Equal(got, []Row{faster, smaller, alone}) {
		t.Fatalf("%v %+v", err, got)
	}
	_, err := Merge([]string{a, b, b})
	var e *fail.Error
	if !errors.As(err, &e) || e.Kind != fail.BadInput || e.Path != b || e.Row != 1 {
		t.Fatalf("a figure twice: %v", err)
	}
	if err := os.WriteFile(a, []byte(`{"name": 3}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge([]string{a}); fail.KindOf(err) != fail.BadInput {
		t.Fatalf("no list of rows: %v", err)
	}
}

func TestTableMarksBrokenPromises(t *testing.T) {
	var b bytes.Buffer
	if err := Table(&b, []Row{faster, smaller, alone}); err != nil {
		t.Fatal(err)
	}
	want := `
name         ours  unit          peer  peer's name  ratio    bound  note
read         200   MB/s          50    json         4 BELOW  10     two cores
peak memory  100   MB            125   json         1.25     1      
product      97.5  GFLOP/s-core  -                  -        0.7    peer not measured: no Python given
`
	if got := "\n" + b.String(); got != want {
		t.Fatalf("got%swant%s", got, want)
	}
}

func TestMissingNamesWhatThePeerLacks(t *testing.T) {
	if got := Missing(""); !strings.Contains(got, "no Python") {
		t.Error(got)
	}
	if got := Missing(filepath.Join(t.TempDir(), "python")); !strings.Contains(got, "does not run") {
		t.Error(got)
	}
}
