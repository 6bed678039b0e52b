// Package manifest reads and writes manifest.json, the one file that makes a
// folder a finished dataset: which parts it has, with rows, bytes and SHA-256,
// what it was made from, and with which parameters. It verifies folders; it
// decides nothing about what is to be made. The format is in docs/manifest.md.
package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// File is the name of the manifest in a dataset folder.
const File = "manifest.json"

// Format is the version of the manifest's own layout.
const Format = 1

// ErrNewer is in the chain of errors about files of formats to come.
var ErrNewer = errors.New("made by a newer version of searchloop")

// Manifest describes a finished dataset, or one finished shard of it.
type Manifest struct {
	Format  int             `json:"manifest"`          // Format; set by Write
	Schema  string          `json:"schema"`            // what the rows are: questions, rollouts, …
	Version int             `json:"version"`           // version of that schema
	Shard   string          `json:"shard,omitempty"`   // "3/16" in a part manifest
	Spec    string          `json:"spec"`              // digest of schema, version, parameters and inputs
	Params  json.RawMessage `json:"params,omitempty"`  // exactly what the content depends on, beside the inputs
	Inputs  []Input         `json:"inputs,omitempty"`  // sorted by name
	Parts   []Part          `json:"parts"`             // data parts in row order, then side parts by name
	Counts  Counts          `json:"counts"`            //
	Usage   *Usage          `json:"usage,omitempty"`   // calls to paid or remote services
	Meta    json.RawMessage `json:"meta,omitempty"`    // whatever the schema's page defines
	Program string          `json:"program,omitempty"` // who made it
	Started time.Time       `json:"started,omitzero"`  //
	Ended   time.Time       `json:"ended,omitzero"`    //
}

// Input is a file or dataset that the content was made from.
type Input struct {
	Name   string `json:"name"` // role: questions, index
	Path   string `json:"path"` // where it lay; for people
	SHA256 string `json:"sha256"`
	// For a plain file: what it looked like when it was read, so that a rerun need
	// not read it again to see that it is the same.
	Bytes   int64     `json:"bytes,omitempty"`
	ModTime time.Time `json:"mtime,omitzero"`
}

// Part is one file of the dataset. A side part accompanies the data (rejects,
// timings, reports) and is not rows of the schema.
type Part struct {
	Name   string `json:"name"` // relative to the folder, with slashes
	Rows   int64  `json:"rows,omitempty"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Side   bool   `json:"side,omitempty"`
	// Pruned says by what the file was removed after the dataset was finished. What
	// the dataset is does not change by that: its digest stays.
	Pruned string `json:"pruned,omitempty"`
}

// Counts are rows: In were read, OK and Failed are in the parts (a failed row is
// the record of a failure), Rejected are in the rejects files. Reused of them
// were taken from an earlier, interrupted attempt.
type Counts struct {
	In       int64 `json:"in"`
	OK       int64 `json:"ok"`
	Failed   int64 `json:"failed"`
	Rejected int64 `json:"rejected"`
	Reused   int64 `json:"reused,omitempty"`
}

// Add sums counts.
func (c Counts) Add(o Counts) Counts {
	return Counts{c.In + o.In, c.OK + o.OK, c.Failed + o.Failed, c.Rejected + o.Rejected, c.Reused + o.Reused}
}

// Usage is what services were asked for. Cost is in US dollars, 0 when unknown.
type Usage struct {
	Requests         int64   `json:"requests,omitempty"`
	Retries          int64   `json:"retries,omitempty"`
	PromptTokens     int64   `json:"prompt_tokens,omitempty"`
	CompletionTokens int64   `json:"completion_tokens,omitempty"`
	Cost             float64 `json:"cost,omitempty"`

	Providers map[string]Provider `json:"providers,omitempty"` // of tools, by name; their dollars are in Cost too
}

// Provider is what one outside provider of a tool was asked for.
type Provider struct {
	Calls   int64   `json:"calls"`            // requests made, repetitions included
	Failed  int64   `json:"failed,omitempty"` // of them
	Empty   int64   `json:"empty,omitempty"`  // of them, answered that there is nothing
	Cached  int64   `json:"cached"`           // requests answered without a call
	Dollars float64 `json:"dollars"`
}

// Add sums usages.
func (u Usage) Add(o Usage) Usage {
	sum := Usage{Requests: u.Requests + o.Requests, Retries: u.Retries + o.Retries, PromptTokens: u.PromptTokens + o.PromptTokens,
		CompletionTokens: u.CompletionTokens + o.CompletionTokens, Cost: u.Cost + o.Cost}
	for _, list := range []map[string]Provider{u.Providers, o.Providers} {
		for name, p := range list {
			if sum.Providers == nil {
				sum.Providers = map[string]Provider{}
			}
			q := sum.Providers[name]
			sum.Providers[name] = Provider{p.Calls + q.Calls, p.Failed + q.Failed, p.Empty + q.Empty, p.Cached + q.Cached, p.Dollars + q.Dollars}
		}
	}
	return sum
}

// IsZero says that nothing was asked for.
func (u Usage) IsZero() bool {
	return u.Requests == 0 && u.Retries == 0 && u.PromptTokens == 0 && u.CompletionTokens == 0 && u.Cost == 0 && len(u.Providers) == 0
}

// Path is the manifest of a dataset, given its folder or the manifest itself.
func Path(dir string) string {
	if filepath.Base(dir) == File {
		return dir
	}
	return filepath.Join(dir, File)
}

// Open reads the manifest of the finished dataset in dir and checks that every
// part is there with its size. A folder without manifest is fail.BadInput.
func Open(dir string) (*Manifest, error) {
	path := Path(dir)
	m, err := Read(path)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "open dataset", Path: dir, Err: errors.New("it is a file, not the folder of a dataset"), Hint: "name the folder that holds " + File}
	}
	if errors.Is(err, fs.ErrNotExist) {
		hint := "the folder is unfinished or no dataset; run the job that makes it"
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			hint = "there is no such folder; check the path or run the job that makes it"
		}
		return nil, &fail.Error{Kind: fail.BadInput, Op: "open dataset", Path: filepath.Dir(path), Err: errors.New("no " + File), Hint: hint}
	}
	if err != nil {
		return nil, err
	}
	if err := m.Sizes(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return m, nil
}

// Read reads one manifest file and checks its form, not its parts. The error of a
// missing file is fs.ErrNotExist.
func Read(path string) (*Manifest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.Wrap(fail.BadInput, "read manifest", path, err)
	}
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "read manifest", Path: path, Err: err, Hint: "the file is damaged; remove it and run the job that makes the dataset"}
	}
	if m.Format > Format {
		return nil, fail.New(fail.BadInput, "read manifest", path, "%w: manifest format %d, this program reads up to %d", ErrNewer, m.Format, Format)
	}
	if m.Format < 1 || m.Schema == "" {
		return nil, fail.New(fail.BadInput, "read manifest", path, "not a searchloop manifest")
	}
	for _, p := range m.Parts {
		if !filepath.IsLocal(filepath.FromSlash(p.Name)) || p.Bytes < 0 || p.Rows < 0 {
			return nil, fail.New(fail.BadInput, "read manifest", path, "impossible part %q", p.Name)
		}
	}
	return m, nil
}

// Require refuses a dataset of another schema or of a newer version of it.
func (m *Manifest) Require(dir, schema string, version int) error {
	switch {
	case m.Schema != schema:
		return fail.New(fail.BadInput, "open dataset", dir, "it holds %s, not %s", m.Schema, schema)
	case m.Version > version:
		return fail.New(fail.BadInput, "open dataset", dir, "%w: %s version %d, this program reads up to %d", ErrNewer, schema, m.Version, version)
	}
	return nil
}

// Write publishes m as path, unless the file there has the same Content. It says
// whether it wrote.
func (m *Manifest) Write(path string) (bool, error) {
	m.Format = Format
	if old, err := Read(path); err == nil && old.Content() == m.Content() {
		return false, nil
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return false, fail.Wrap(fail.Bug, "write manifest", path, err)
	}
	return true, atomicfile.WriteFile(path, append(text, '\n'))
}

// Rows is the number of rows in the data parts.
func (m *Manifest) Rows() (n int64) {
	for _, p := range m.Parts {
		if !p.Side {
			n += p.Rows
		}
	}
	return n
}

// Data lists the parts that hold the dataset's rows, in order.
func (m *Manifest) Data() []Part {
	var list []Part
	for _, p := range m.Parts {
		if !p.Side {
			list = append(list, p)
		}
	}
	return list
}

// Side returns the side part of that name.
func (m *Manifest) Side(name string) (Part, bool) {
	for _, p := range m.Parts {
		if p.Side && p.Name == name {
			return p, true
		}
	}
	return Part{}, false
}

func (p Part) String() string { return fmt.Sprintf("%s (%d rows, %d bytes)", p.Name, p.Rows, p.Bytes) }
