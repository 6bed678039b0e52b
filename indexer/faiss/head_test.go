package faiss

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

// Without FAISS everything that needs it says what to install.
func TestAvailable(t *testing.T) {
	err := Available()
	if library != nil {
		if err != nil {
			t.Error(err)
		}
		return
	}
	for _, err := range []error{err, second(OpenSet([]string{"x"}, Effort{})), second(Train(8, "Flat", nil)), second(Check(8, "Flat", Effort{})), Merge([]string{"x"}, nil)} {
		if fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "libfaiss-dev") || !strings.Contains(err.Error(), "make build") {
			t.Errorf("%v", err)
		}
	}
}

func TestReadHead(t *testing.T) {
	h, err := ReadHead(filepath.Join("..", "flat", "testdata", "fp16-l2.index"))
	must(t, err)
	if h.Kind != "IndexScalarQuantizer" || h.Dim != 8 || h.Rows != 37 || h.MetricName() != "l2" || !h.Flat() {
		t.Errorf("%+v", h)
	}
	good, err := os.ReadFile(filepath.Join("..", "flat", "testdata", "tiny.index"))
	must(t, err)
	path := filepath.Join(t.TempDir(), "x")
	for what, edit := range map[string]func(b []byte) []byte{
		"shorter than the header": func(b []byte) []byte { return b[:20] },
		"begins with \"\"":        func(b []byte) []byte { return nil },
		"begins with \"NONE\"":    func(b []byte) []byte { return append([]byte("NONE"), b[4:]...) },
		"not trained":             func(b []byte) []byte { b[32] = 0; return b },
		"dimension -1":            func(b []byte) []byte { copy(b[4:], "\xff\xff\xff\xff"); return b },
	} {
		must(t, os.WriteFile(path, edit(slices.Clone(good)), 0o644))
		if _, err := ReadHead(path); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestSample(t *testing.T) {
	a, b := Sample(1000, 50, 1), Sample(1000, 50, 2)
	if len(a) != 50 || !slices.IsSorted(a) || slices.Equal(a, b) || !slices.Equal(a, Sample(1000, 50, 1)) || a[0] < 0 || a[49] > 999 {
		t.Errorf("%v", a)
	}
	if got := Sample(3, 50, 1); !slices.Equal(got, []int64{0, 1, 2}) {
		t.Errorf("%v", got)
	}
	for f, want := range map[string]int{"Flat": 65536, "OPQ64,IVF4096_HNSW32,PQ64np": 262144, "IVF16,Flat": 65536} {
		if got := SampleSize(f); got != want {
			t.Errorf("%s: %d", f, got)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }
