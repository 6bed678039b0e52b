package kv

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/kv/kvtest"
)

// eachStore runs one test on every kind of store. open opens the same store again,
// as another process would.
func eachStore(t *testing.T, f func(t *testing.T, open func() Store)) {
	opener := func(t *testing.T, place string) func() Store {
		return func() Store {
			s, err := Open(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
	}
	t.Run("folder", func(t *testing.T) { f(t, opener(t, filepath.Join(t.TempDir(), "store"))) })
	t.Run("redis", func(t *testing.T) { f(t, opener(t, kvtest.Start(t).URL)) })
}

func TestValues(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() Store) {
		ctx, a, b := t.Context(), open(), open()
		if _, found, err := a.Get(ctx, "k"); found || err != nil {
			t.Fatalf("an empty store gave %v, %v", found, err)
		}
		big := bytes.Repeat([]byte("\x00\xffbig"), 1<<18)
		for key, value := range map[string][]byte{"k": []byte("v"), "empty": {}, "big": big, "odd key\n/../../x\x00ü": []byte("odd")} {
			if err := a.Put(ctx, key, value, 0); err != nil {
				t.Fatal(err)
			}
			if got, found, err := b.Get(ctx, key); !found || err != nil || !bytes.Equal(got, value) {
				t.Errorf("%.10q: %d bytes, %v, %v", key, len(got), found, err)
			}
		}
		if err := b.Put(ctx, "k", []byte("new"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := a.Get(ctx, "k"); string(got) != "new" {
			t.Errorf("got %q after it was replaced", got)
		}
		if err := a.Put(ctx, "soon", []byte("x"), time.Second); err != nil {
			t.Fatal(err)
		}
		put := time.Now()
		if _, found, _ := b.Get(ctx, "soon"); !found && time.Since(put) < time.Second/2 {
			t.Error("expired at once")
		}
		time.Sleep(1200 * time.Millisecond)
		if _, found, err := b.Get(ctx, "soon"); found || err != nil {
			t.Errorf("found %v after it expired, %v", found, err)
		}
	})
}

func TestNumbersAddUp(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() Store) {
		stores := []Store{open(), open()}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				if _, err := stores[i%2].Add(t.Context(), "n", int64(i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if sum, err := open().Add(t.Context(), "n", -900); sum != 199*100-900 || err != nil {
			t.Errorf("sum %d, %v", sum, err)
		}
		if _, found, _ := stores[0].Get(t.Context(), "n"); found {
			t.Error("a number is seen as a value")
		}
	})
}

// TestSlots holds that two users of a queue together get its rate: four at once,
// then one every 50 ms.
func TestSlots(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() Store) {
		stores := []Store{open(), open()}
		var waits []time.Duration
		begin := time.Now()
		for i := range 10 {
			wait, err := stores[i%2].Slot(t.Context(), "q", 50*time.Millisecond, 4)
			if err != nil {
				t.Fatal(err)
			}
			waits = append(waits, time.Since(begin)+wait) // when it is the place's turn
		}
		for i, at := range waits {
			want := time.Duration(max(0, i-3)) * 50 * time.Millisecond
			if at < want-5*time.Millisecond || at > want+time.Since(begin)+20*time.Millisecond {
				t.Errorf("place %d has its turn after %v, want %v", i, at, want)
			}
		}
	})
}

// TestKilled holds that a folder which processes are killed over stays whole:
// every value is one that was put, and the number counts what was acknowledged.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("KV_TEST_DIR"); dir != "" {
		s, _ := Open(context.Background(), dir)
		for i := 0; ; i++ {
			s.Put(context.Background(), fmt.Sprint(i%7), bytes.Repeat([]byte{byte(i)}, 1<<16), 0)
			sum, _ := s.Add(context.Background(), "n", 1)
			fmt.Println(sum)
		}
	}
	dir := t.TempDir()
	said := int64(0)
	for i := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "KV_TEST_DIR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 5 + 20*i {
			fmt.Fscan(out, &said)
		}
		cmd.Process.Kill()
		rest := new(bytes.Buffer)
		rest.ReadFrom(out)
		cmd.Wait()
		for _, line := range strings.Fields(rest.String()) {
			fmt.Sscan(line, &said)
		}
	}
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		v, found, err := s.Get(t.Context(), fmt.Sprint(i))
		if !found || err != nil || len(v) != 1<<16 || !bytes.Equal(v, bytes.Repeat(v[:1], 1<<16)) {
			t.Errorf("value %d: %d bytes, %v, %v", i, len(v), found, err)
		}
	}
	// At most the one addition that was in flight when its process died is not heard of.
	if sum, err := s.Add(t.Context(), "n", 0); err != nil || sum < said || sum > said+1 || said < 5 {
		t.Errorf("the number is %d after %d were acknowledged, %v", sum, said, err)
	}
}

// A process takes away what killed writers left, before it writes beside it, and
// nothing of a live one.
func TestSweep(t *testing.T) {
	place := t.TempDir()
	a, err := openFolder(place)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(a.value("k"))
	if err := a.Put(t.Context(), "k", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	dead, live, other := filepath.Join(dir, tempName+"dead"), filepath.Join(dir, tempName+"live"), filepath.Join(dir, "else")
	for _, name := range []string{dead, live, other} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.OpenFile(live, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Skip("no locks here: ", err)
	}
	b, err := openFolder(place)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "k", []byte("2"), 0); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{dead: false, live: true, other: true, b.value("k"): true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}

	// Writers and processes that begin do not hurt each other.
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				f, err := openFolder(place)
				if err == nil {
					err = f.Put(t.Context(), "k", fmt.Append(nil, w, i), 0)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestDamagedFilesAreNoValues(t *testing.T) {
	f, err := openFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	good := encode("k", []byte("value"), 0)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		for _, b := range [][]byte{bad, good[:i]} {
			if err := write(f.value("k"), b); err != nil {
				t.Fatal(err)
			}
			if v, found, err := f.Get(t.Context(), "k"); found || err != nil {
				t.Errorf("byte %d: %q, %v", i, v, err)
			}
		}
	}
}

func TestRedisPassword(t *testing.T) {
	r := kvtest.Start(t, "--requirepass", "open-sesame-42")
	_, err := Open(t.Context(), r.URL)
	if fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), PasswordName) {
		t.Errorf("without a password: %v", err)
	}
	_, err = Open(t.Context(), strings.Replace(r.URL, "//", "//:open-sesame-42@", 1))
	if fail.KindOf(err) != fail.Usage || strings.Contains(err.Error(), "sesame") {
		t.Errorf("a password in the URL: %v", err)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("open-sesame-42\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(PasswordName+"_FILE", file)
	s, err := Open(t.Context(), r.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "k", nil, 0); err != nil {
		t.Error(err)
	}
	s.Close()
}

// TestRedisGone holds that a Redis which has gone is an error at once, and is
// asked again after a while.
func TestRedisGone(t *testing.T) {
	r := kvtest.Start(t)
	s, err := Open(t.Context(), r.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Add(t.Context(), "n", 7); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	for range 100 {
		if _, err := s.Add(t.Context(), "n", 1); fail.KindOf(err) != fail.Service {
			t.Fatal(err)
		}
	}
	r.Again()
	s.(*server).until.Store(0)
	if sum, err := s.Add(t.Context(), "n", 1); sum != 8 || err != nil {
		t.Error(sum, err)
	}
}
