package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/retry"
)

func TestMain(m *testing.M) {
	patience = retry.Options{Tries: 2, Base: time.Millisecond, Open: 10 * time.Millisecond, Gone: 200 * time.Millisecond}
	os.Exit(m.Run())
}

// questions makes a dataset of n questions with an image each, of which the first
// two share theirs and the last one's is lost.
func questions(t *testing.T, n int) (dir string, images map[string][]byte) {
	t.Helper()
	dir, images = filepath.Join(t.TempDir(), "questions"), map[string][]byte{}
	var lines bytes.Buffer
	last := ""
	for i := range n {
		m := image.NewGray(image.Rect(0, 0, 40, 30))
		m.SetGray(max(i, 1), 0, color.Gray{Y: 200})
		var b bytes.Buffer
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		last = manifest.Hash(b.Bytes())
		images[last] = b.Bytes()
		line, err := json.Marshal(map[string]any{"id": fmt.Sprint("q", i), "question": "What?", "answers": []string{"x"}, "image": map[string]any{"bytes": b.Bytes()}})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	source := filepath.Join(t.TempDir(), "q.jsonl")
	if err := os.WriteFile(source, lines.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := corpus.Prep(t.Context(), job.Testing(t), corpus.PrepOptions{Format: "jsonl", In: []string{source}, Out: dir}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "images", last[:2], last+".png")); err != nil {
		t.Fatal(err)
	}
	delete(images, last)
	return dir, images
}

func published(t *testing.T, dir string) (out []Image) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "part-00000-of-00001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var i Image
		if err := d.Decode(&i); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, i)
	}
}

// modified are the times of the files below dir.
func modified(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	out := map[string]time.Time{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			out[path] = info.ModTime()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// conform holds what every storage must do: each image once, readable at its
// address, and no byte sent a second time.
func conform(t *testing.T, o Options, objects string) {
	var images map[string][]byte
	o.Questions, images = questions(t, 12)
	o.Out = filepath.Join(t.TempDir(), "published")
	if err := Run(t.Context(), job.Testing(t), o); err != nil {
		t.Fatal(err)
	}
	list := published(t, o.Out)
	if len(list) != len(images) || len(images) != 10 {
		t.Fatalf("%d lines for %d images", len(list), len(images))
	}
	for i, line := range list {
		resp, err := http.Get(line.URL)
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !bytes.Equal(data, images[line.Image]) || line.Bytes != len(data) || resp.Header.Get("Content-Type") != "image/png" {
			t.Errorf("%s: %s, %d bytes of %s", line.URL, resp.Status, len(data), resp.Header.Get("Content-Type"))
		}
		if i > 0 && list[i-1].Image >= line.Image {
			t.Error("not in the order of the images")
		}
	}
	m, err := manifest.Open(o.Out)
	if err != nil || m.Counts != (manifest.Counts{In: 11, OK: 10, Rejected: 1}) {
		t.Errorf("%+v, %v", m.Counts, err)
	}
	before := modified(t, objects)
	o.Out += "-again"
	if err := Run(t.Context(), job.Testing(t), o); err != nil {
		t.Fatal(err)
	}
	for path, at := range modified(t, objects) {
		if !before[path].Equal(at) {
			t.Errorf("%s was uploaded again", path)
		}
	}
	for path := range modified(t, filepath.Dir(o.Out)) {
		if b, _ := os.ReadFile(path); strings.Contains(string(b), "canary") {
			t.Errorf("%s holds a secret", path)
		}
	}
}

func TestS3Signed(t *testing.T) {
	endpoint, objects := startS3(t)
	o := Options{To: "s3://pictures/of/questions", Endpoint: endpoint, Expires: time.Hour}
	conform(t, o, objects)
	// An address lasts as long as it says, and without its signature it is closed.
	o.Questions, _ = questions(t, 3)
	o.Out = filepath.Join(t.TempDir(), "published")
	if err := Run(t.Context(), job.Testing(t), o); err != nil {
		t.Fatal(err)
	}
	line := published(t, o.Out)[0]
	if left := time.Until(line.Expires); left < 50*time.Minute || left > time.Hour {
		t.Errorf("it expires in %v", left)
	}
	bare, _, _ := strings.Cut(line.URL, "?")
	resp, err := http.Get(bare)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("%s without a signature", resp.Status)
	}
	// Nobody may read there without a signature: said now, not by searches that find nothing.
	o.Public, o.Out = endpoint+"/pictures", o.Out+"-public"
	if err := Run(t.Context(), job.Testing(t), o); fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), "--public") {
		t.Error(err)
	}
}

func TestS3Refuses(t *testing.T) {
	endpoint, _ := startS3(t)
	dir, _ := questions(t, 4)
	for name, c := range map[string]struct {
		to, id, key, session string
		kind                 fail.Kind
		says                 string
	}{
		"no bucket":      {"s3://absent/x", "the-id", "canary-key-of-s3", "", fail.Service, "NoSuchBucket"},
		"wrong key":      {"s3://pictures/x", "the-id", "canary-wrong-key", "", fail.Service, s3Key},
		"no credentials": {"s3://pictures/x", "", "", "", fail.Usage, s3ID},
		"session":        {"s3://pictures/x", "the-id", "canary-key-of-s3", "canary-session", fail.Usage, "--public"},
		"unknown":        {"ftp://pictures/x", "the-id", "canary-key-of-s3", "", fail.Usage, "ftp"},
		"user":           {"s3://me:canary@pictures/x", "the-id", "canary-key-of-s3", "", fail.Usage, "s3://"},
	} {
		t.Setenv(s3ID, c.id)
		t.Setenv(s3Key, c.key)
		t.Setenv(s3Session, c.session)
		err := Run(t.Context(), job.Testing(t), Options{Questions: dir, Out: filepath.Join(t.TempDir(), "out"), To: c.to, Endpoint: endpoint, Expires: time.Hour})
		if fail.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPut(t *testing.T) {
	address, objects := startPut(t)
	o := Options{To: address, Expires: time.Hour}
	o.Questions, _ = questions(t, 3)
	o.Out = filepath.Join(t.TempDir(), "published")
	if err := Run(t.Context(), job.Testing(t), o); fail.KindOf(err) != fail.Service || !strings.Contains(err.Error(), putToken) {
		t.Errorf("without a token: %v", err)
	}
	t.Setenv(putToken, "canary-of-put")
	conform(t, Options{To: address, Expires: time.Hour}, objects)
}

// TestGone holds that a storage that goes in the middle ends the job resumably, and
// that the next run uploads only the rest.
func TestGone(t *testing.T) {
	address, objects := startPut(t)
	t.Setenv(putToken, "canary-of-put")
	o := Options{To: address, Expires: time.Hour, Out: filepath.Join(t.TempDir(), "published")}
	o.Questions, _ = questions(t, 40)
	r := job.Testing(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(modified(t, filepath.Dir(objects))) < 5 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := Run(ctx, r, o); err != nil && fail.KindOf(err) != fail.Interrupted {
		t.Fatal(err)
	}
	before := modified(t, objects)
	if err := Run(t.Context(), job.Testing(t), o); err != nil {
		t.Fatal(err)
	}
	after := modified(t, objects)
	for path, at := range before {
		if !after[path].Equal(at) {
			t.Errorf("%s was uploaded again", path)
		}
	}
	if len(published(t, o.Out)) != 38 || len(after) != 38 {
		t.Errorf("%d lines, %d objects", len(published(t, o.Out)), len(after))
	}
	o.To, o.Out = fmt.Sprintf("http://127.0.0.1:%d/x", freePort(t)), o.Out+"-gone"
	if err := Run(t.Context(), job.Testing(t), o); fail.ExitCode(err) != 69 {
		t.Error(err)
	}
}
