package serve

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
)

func TestRun(t *testing.T) {
	dir := policyDir(t)
	out, in := io.Pipe()
	r := job.NewRun("serve", job.Flags{ProgressMode: "none"}, in, io.Discard)
	done := make(chan error, 1)
	go func() { done <- Run(context.Background(), r, RunOptions{Policy: dir, Addr: "127.0.0.1:0"}) }()
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(string(line[:n]))
	code, _, data := post(t, strings.TrimSuffix(url, "/v1"), `{"messages":[{"role":"user","content":"x"}],"max_tokens":3,"seed":1}`)
	if code != 200 {
		t.Errorf("%d %s", code, data)
	}
	r.Stop()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it does not stop")
	}
	if _, err := http.Get(url + "/models"); err == nil {
		t.Error("it still answers")
	}
	// An address that is taken is a usage error.
	s, _ := realServer(t, dir, Options{})
	busy, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(strings.TrimSuffix(strings.TrimPrefix(busy, "http://"), "/v1")); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
}

// TestOpenDamaged: a folder that is no policy is a BadInput error with its path.
func TestOpenDamaged(t *testing.T) {
	good := policyDir(t)
	for what, change := range map[string]func(dir string) error{
		"no tokenizer":    func(d string) error { return os.Remove(filepath.Join(d, "tokenizer.json")) },
		"no weights":      func(d string) error { return os.Remove(filepath.Join(d, "model.safetensors")) },
		"no config":       func(d string) error { return os.Remove(filepath.Join(d, "config.json")) },
		"no processor":    func(d string) error { return os.Remove(filepath.Join(d, "preprocessor_config.json")) },
		"other patches":   func(d string) error { return write(d, "preprocessor_config.json", `{"patch_size":14}`) },
		"bad end marks":   func(d string) error { return write(d, "generation_config.json", `{"eos_token_id":"x"}`) },
		"bad manifest":    func(d string) error { return write(d, "manifest.json", `{`) },
		"cut weights":     func(d string) error { return os.Truncate(filepath.Join(d, "model.safetensors"), 1000) },
		"other tokenizer": func(d string) error { return write(d, "tokenizer.json", `{"model":{}}`) },
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		s, err := New(dir, Options{})
		if err == nil {
			s.Close(context.Background())
		}
		if err == nil || fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := New(filepath.Join(good, "nowhere"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := New(good, Options{Context: 1 << 20}); fail.KindOf(err) != fail.Usage {
		t.Error(err)
	}
	if err := write(good, "generation_config.json", `{"eos_token_id":[1,2]}`); err != nil {
		t.Fatal(err)
	}
	a, errA := Digest(good)
	if err := write(good, "generation_config.json", `{"eos_token_id":2}`); err != nil {
		t.Fatal(err)
	}
	b, errB := Digest(good)
	if errA != nil || errB != nil || a == b || len(a) != 64 {
		t.Errorf("digests %s %s: %v %v", a, b, errA, errB)
	}
}

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666)
}
