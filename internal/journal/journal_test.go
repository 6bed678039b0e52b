package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"searchloop/internal/fail"
)

const header = "digest-of-spec"

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path, header)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func put(t *testing.T, j *Journal, key, payload string) {
	t.Helper()
	if err := j.Append(key, []byte(payload)); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, j *Journal, pairs ...string) {
	t.Helper()
	var keys []string
	for i := 0; i < len(pairs); i += 2 {
		keys = append(keys, pairs[i])
		if got, ok := j.Get(pairs[i]); !ok || string(got) != pairs[i+1] {
			t.Errorf("%s: %q %v, want %q", pairs[i], got, ok, pairs[i+1])
		}
	}
	if got := strings.Join(j.Keys(), " "); got != strings.Join(keys, " ") {
		t.Errorf("keys %s, want %v", got, keys)
	}
}

func TestLastRecordWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w", "j")
	j := open(t, path)
	want(t, j)
	put(t, j, "b", "1")
	put(t, j, "a", "")
	put(t, j, "b", strings.Repeat("x", 1<<20))
	want(t, j, "a", "", "b", strings.Repeat("x", 1<<20))
	if _, ok := j.Get("c"); ok || j.Has("c") || !j.Has("a") || j.Len() != 2 {
		t.Error("wrong about what is there")
	}
	// Without Close: the process was killed.
	again := open(t, path)
	want(t, again, "a", "", "b", strings.Repeat("x", 1<<20))
	put(t, again, "c", "3")
	again.Close()
	if err := again.Append("d", nil); err == nil {
		t.Error("appended to a closed journal")
	}
	want(t, open(t, path), "a", "", "b", strings.Repeat("x", 1<<20), "c", "3")
	if err := j.Append("", nil); fail.KindOf(err) != fail.Bug {
		t.Error("an empty key was accepted")
	}
}

// sample writes three records and returns the file and where each record ends.
func sample(t *testing.T, path string) (data []byte, ends []int64) {
	t.Helper()
	j := open(t, path)
	ends = append(ends, j.end)
	for i := range 3 {
		put(t, j, fmt.Sprint("k", i), fmt.Sprintf("payload %d \xf5REC with a mark", i))
		ends = append(ends, j.end)
	}
	j.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data, ends
}

// Cut at each byte of its last record, a journal loses that record and no other.
func TestTornTail(t *testing.T) {
	data, ends := sample(t, filepath.Join(t.TempDir(), "j"))
	dir := t.TempDir()
	for n := ends[2]; n < ends[3]; n++ {
		path := filepath.Join(dir, fmt.Sprint(n))
		os.WriteFile(path, data[:n], 0o644)
		j := open(t, path)
		if j.Len() != 2 || j.Damage().Torn != n-ends[2] || j.Damage().Aside != "" {
			t.Fatalf("cut at %d: %d records, %+v", n, j.Len(), j.Damage())
		}
		put(t, j, "k2", "again")
		j.Close()
		if j := open(t, path); j.Len() != 3 || j.Damage() != (Damage{}) {
			t.Fatalf("cut at %d: after one more record %d, %+v", n, j.Len(), j.Damage())
		}
	}
}

// After a crash of the machine the tail may be zeros.
func TestZeroTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	data, _ := sample(t, path)
	os.WriteFile(path, append(data, make([]byte, 5000)...), 0o644)
	if j := open(t, path); j.Len() != 3 || j.Damage().Torn != 5000 {
		t.Fatalf("%d records, %+v", j.Len(), j.Damage())
	}
}

// A flipped bit anywhere is found; what follows it is moved aside, not deleted,
// and counted; what stood before it stays.
func TestFlippedBits(t *testing.T) {
	data, ends := sample(t, filepath.Join(t.TempDir(), "j"))
	dir := t.TempDir()
	for n := range data {
		path := filepath.Join(dir, fmt.Sprint(n))
		bad := bytes.Clone(data)
		bad[n] ^= 1 << (n % 8)
		os.WriteFile(path, bad, 0o644)
		j := open(t, path)
		whole := 0 // records before the damage
		for i := 1; i < len(ends); i++ {
			if int64(n) >= ends[i] {
				whole++
			}
		}
		if int64(n) < ends[0] {
			whole = 0
		}
		if j.Len() != whole {
			t.Fatalf("byte %d: %d records, want %d", n, j.Len(), whole)
		}
		for i := range whole {
			if got, ok := j.Get(fmt.Sprint("k", i)); !ok || !strings.HasPrefix(string(got), fmt.Sprintf("payload %d", i)) {
				t.Fatalf("byte %d: record %d is %q", n, i, got)
			}
		}
		if int64(n) < ends[2] { // whole records follow
			d := j.Damage()
			aside, err := os.ReadFile(d.Aside)
			if err != nil {
				t.Fatalf("byte %d: %+v %v", n, d, err)
			}
			lost := 2 - whole
			if int64(n) < ends[0] {
				lost = 3
			}
			if d.Records != lost || !bytes.HasSuffix(bad, aside) {
				t.Fatalf("byte %d: %d records aside, want %d", n, d.Records, lost)
			}
		}
		j.Close()
	}
}

func TestOtherHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path)
	put(t, j, "a", "of the first")
	j.Close()
	other, err := Open(path, "another digest")
	if err != nil {
		t.Fatal(err)
	}
	if other.Len() != 0 || !strings.HasSuffix(other.Damage().Stale, ".stale") {
		t.Fatalf("%d records, %+v", other.Len(), other.Damage())
	}
	put(t, other, "a", "of the second")
	other.Close()
	want(t, open(t, path), "a", "of the first")
	if other, _ = Open(path, "another digest"); other == nil {
		t.Fatal("cannot go back")
	}
	want(t, other, "a", "of the second")
	other.Close()
}

func TestNotAJournal(t *testing.T) {
	for _, text := range []string{"x", "SLJRNL1\n", "SLJRNL1\ngarbage garbage garbage", strings.Repeat("z", 1<<16)} {
		path := filepath.Join(t.TempDir(), "j")
		os.WriteFile(path, []byte(text), 0o644)
		j := open(t, path)
		put(t, j, "a", "1")
		want(t, j, "a", "1")
		if aside, _ := os.ReadFile(path + ".bad"); string(aside) != text || j.Damage().Aside != path+".bad" {
			t.Errorf("%.20q was not moved aside: %+v", text, j.Damage())
		}
	}
}

func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 0))
			for i := range 100 {
				key := fmt.Sprintf("%d/%03d", w, i)
				if err := j.Append(key, bytes.Repeat([]byte(key), rng.IntN(50))); err != nil {
					t.Error(err)
				}
				if got, ok := j.Get(key); !ok || len(got)%len(key) != 0 {
					t.Errorf("%s: %q %v", key, got, ok)
				}
			}
		})
	}
	wg.Wait()
	j.Close()
	if again := open(t, path); again.Len() != 800 || again.Damage() != (Damage{}) {
		t.Fatalf("%d records, %+v", again.Len(), again.Damage())
	}
}

// A full disk loses nothing that was written, and writing goes on when there is
// space again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a tmpfs: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	j := open(t, filepath.Join(dir, "j"))
	n := 0
	var err error
	for ; err == nil; n++ {
		err = j.Append(fmt.Sprintf("%04d", n), make([]byte, 10000))
	}
	if fail.ExitCode(err) != 74 || j.Len() != n-1 {
		t.Fatalf("%v after %d records, %d there", err, n, j.Len())
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=2m"); err != nil {
		t.Fatal(err)
	}
	put(t, j, "later", "1")
	j.Close()
	if again := open(t, j.Path()); again.Len() != n || again.Damage() != (Damage{}) {
		t.Fatalf("%d records, want %d: %+v", again.Len(), n, again.Damage())
	}
}

// The idle tail is synced without a further Append.
func TestSyncedWhenIdle(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "j"))
	put(t, j, "a", "1")
	for range 100 {
		j.mu.Lock()
		pending := j.pending
		j.mu.Unlock()
		if pending == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("never synced")
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(magic), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		path := filepath.Join(t.TempDir(), "j")
		whole := append([]byte(magic), record("", []byte(header))...)
		whole = append(whole, record("a", []byte("A"))...)
		if cut > 0 && cut < len(whole) {
			whole = whole[:cut]
		}
		os.WriteFile(path, append(whole, data...), 0o644)
		j, err := Open(path, header)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append("b", []byte("B")); err != nil {
			t.Fatal(err)
		}
		n := j.Len()
		j.Close()
		again, err := Open(path, header)
		if err != nil || again.Len() != n || again.Damage() != (Damage{}) {
			t.Fatalf("%v: %d records, then %d, %+v", err, n, again.Len(), again.Damage())
		}
		again.Close()
	})
}

// Whoever looks from outside counts what is whole, and changes nothing.
func TestCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, err := Open(path, "h")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, k := range []string{"a", "b", "a", "c"} {
		if err := j.Append(k, []byte("payload")); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Count(path); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	text, _ := os.ReadFile(path)
	cut := filepath.Join(t.TempDir(), "cut")
	for i := range text {
		os.WriteFile(cut, text[:i], 0o644)
		if n, err := Count(cut); n > 3 || err != nil {
			t.Fatal(i, n, err)
		}
		if after, _ := os.ReadFile(cut); len(after) != i {
			t.Fatal("it was changed")
		}
	}
	if _, err := Count(path + ".absent"); err == nil {
		t.Error("a journal that is not there")
	}
}
