package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"

	"searchloop/internal/fail"
)

// Digest identifies the dataset's content: SHA-256 of the manifest without what
// may differ between two equal runs (times, program, use of services, reused
// counts, paths of the inputs, what was pruned since, and bytes of side parts,
// which may hold timings).
func (m *Manifest) Digest() string { return digest(m.core(false)) }

// Content is like Digest, but sees what was pruned and the bytes of side parts too:
// two manifests of equal Content need not replace each other.
func (m *Manifest) Content() string { return digest(m.core(true)) }

func (m *Manifest) core(all bool) *Manifest {
	c := *m
	c.Program, c.Started, c.Ended, c.Usage, c.Counts.Reused = "", time.Time{}, time.Time{}, nil, 0
	c.Inputs = make([]Input, len(m.Inputs))
	for i, in := range m.Inputs {
		c.Inputs[i] = Input{Name: in.Name, SHA256: in.SHA256}
	}
	c.Parts = append([]Part{}, m.Parts...)
	for i := range c.Parts {
		if all {
			break
		}
		c.Parts[i].Pruned = ""
		if c.Parts[i].Side {
			c.Parts[i] = Part{Name: c.Parts[i].Name, Side: true}
		}
	}
	c.Params, c.Meta = Canonical(m.Params), Canonical(m.Meta)
	return &c
}

func digest(m *Manifest) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // only a malformed RawMessage, and Canonical drops those
	}
	return Hash(b)
}

// Hash is the hex SHA-256 of b.
func Hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Canonical is v with sorted keys and without white space; numbers stay as they
// are written. What is no JSON becomes null; empty stays empty.
func Canonical(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return json.RawMessage("null")
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

// HashFile is the size and hex SHA-256 of a file, read in a stream.
func HashFile(path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	// A file would be asked to write itself, and does so by 32 KiB.
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, 256<<10))
	return n, hex.EncodeToString(h.Sum(nil)), err
}

// InputOf describes an input: a dataset folder (or its manifest) by the digest of
// its content, a plain file by its SHA-256.
func InputOf(name, path string) (Input, error) { return InputLike(name, path, nil, time.Time{}) }

// InputLike is InputOf with what an earlier run, which began at the given time,
// knew: a plain file of the same size and modification time is not read again.
func InputLike(name, path string, old []Input, began time.Time) (Input, error) {
	in, err := LookAt(name, path, old, began)
	if err == nil {
		err = in.Read()
	}
	return in, err
}

// Read fills in the digest that LookAt left out.
func (in *Input) Read() (err error) {
	if in.SHA256 == "" {
		_, in.SHA256, err = HashFile(in.Path)
	}
	return fail.Wrap(fail.BadInput, "read input "+in.Name, in.Path, err)
}

// LookAt is InputLike without the digest of a file that has to be read for it.
func LookAt(name, path string, old []Input, began time.Time) (Input, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Input{}, &fail.Error{Kind: fail.BadInput, Op: "open input " + name, Path: path, Err: err, Hint: "check the path or run the job that makes it"}
	}
	if info.IsDir() || filepath.Base(path) == File {
		m, err := Open(path)
		if err != nil {
			return Input{}, fail.Wrap(fail.BadInput, "open input "+name, "", err)
		}
		return Input{Name: name, Path: path, SHA256: m.Digest()}, nil
	}
	in := Input{Name: name, Path: path, Bytes: info.Size(), ModTime: info.ModTime().UTC()}
	for _, o := range old {
		// A file changed within the clock's grain of the earlier run could look the
		// same; two seconds cover every file system.
		same := o.Name == name && o.Bytes == in.Bytes && o.ModTime.Equal(in.ModTime)
		if same && in.ModTime.Before(began.Add(-2*time.Second)) {
			in.SHA256 = o.SHA256
			return in, nil
		}
	}
	return in, nil
}

// Sizes checks that every part that was not pruned is in dir with its size.
func (m *Manifest) Sizes(dir string) error {
	for _, p := range m.Parts {
		if p.Pruned != "" {
			continue
		}
		if err := p.size(dir); err != nil {
			return err
		}
	}
	return nil
}

func (p Part) size(dir string) error {
	path := filepath.Join(dir, filepath.FromSlash(p.Name))
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return &fail.Error{Kind: fail.BadInput, Op: "check part", Path: path, Err: err, Hint: redo(dir)}
	case !info.Mode().IsRegular() || info.Size() != p.Bytes:
		e := fail.New(fail.BadInput, "check part", path, "%d bytes, the manifest says %d", info.Size(), p.Bytes)
		return fail.WithHint(e, redo(dir))
	}
	return nil
}

// Verify reads every part in dir that was not pruned and compares size and SHA-256.
func (m *Manifest) Verify(dir string) error {
	for _, p := range m.Parts {
		if p.Pruned != "" {
			continue
		}
		if err := p.Verify(dir); err != nil {
			return err
		}
	}
	return nil
}

// Verify reads the part in dir and compares size and SHA-256. A pruned part is an
// error that says so.
func (p Part) Verify(dir string) error {
	if p.Pruned != "" {
		e := fail.New(fail.BadInput, "verify part", filepath.Join(dir, filepath.FromSlash(p.Name)), "it is gone: pruned by %s", p.Pruned)
		return fail.WithHint(e, "remove "+filepath.Join(dir, File)+" and run the job that made it: it makes the same file again")
	}
	if err := p.size(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.FromSlash(p.Name))
	n, sum, err := HashFile(path)
	if err != nil {
		return fail.Wrap(fail.BadInput, "verify part", path, err)
	}
	if n != p.Bytes || sum != p.SHA256 {
		return fail.WithHint(fail.New(fail.BadInput, "verify part", path, "the data is damaged: SHA-256 is not the manifest's"), redo(dir))
	}
	return nil
}

func redo(dir string) string {
	return "remove " + filepath.Join(dir, File) + " and run the job that made it: only what is damaged is made again"
}

// PartOf describes a finished file of dir.
func PartOf(dir, name string, rows int64, side bool) (Part, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	n, sum, err := HashFile(path)
	if err != nil {
		return Part{}, fail.Wrap(fail.Bug, "describe part", path, err)
	}
	return Part{Name: filepath.ToSlash(name), Rows: rows, Bytes: n, SHA256: sum, Side: side}, nil
}

// SortInputs orders inputs by name.
func SortInputs(list []Input) {
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
}
