// Package tape keeps what the outside world answered, so that a run can be made
// again without it: results of tools, turns of the policy, verdicts of a judge. A
// request goes in, as anything that has a JSON form; the response that was
// recorded for it comes out.
//
// A recording tape answers what is on it and takes on what is not; a replaying
// one fails on a request that it does not have. No secret may be part of a request
// or a response. The format is in docs/record.md.
package tape

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/secret"
)

// Format is the version of a record's layout.
const Format = 1

// Tape is a folder of records. The nil Tape has nothing on it and takes nothing.
// All methods are safe for concurrent use, by goroutines and by processes.
type Tape struct {
	dir    string
	replay bool
	holes  bool // what a replaying tape lacks is its asker's to deal with
}

// Open opens the tape of a run: one that records in the folder record, or one that
// replays the folder replay, or none (nil) when both are "".
func Open(record, replay string) (*Tape, error) {
	switch {
	case record != "" && replay != "":
		return nil, fail.New(fail.Usage, "open tape", "", "--record and --replay exclude each other")
	case record != "":
		if err := os.MkdirAll(record, 0o777); err != nil {
			return nil, fail.Wrap(fail.Disk, "open tape", record, err)
		}
		return &Tape{dir: record}, nil
	case replay != "":
		if st, err := os.Stat(replay); err != nil || !st.IsDir() {
			return nil, fail.WithHint(fail.New(fail.BadInput, "open tape", replay, "no such folder"), "name the folder that --record wrote")
		}
		return &Tape{dir: replay, replay: true}, nil
	}
	return nil, nil
}

// Frozen opens a replaying tape whose gaps are no errors: Get says that there is
// nothing. digest names what is on it, by the requests.
func Frozen(dir string) (t *Tape, digest string, err error) {
	if t, err = Open("", dir); err != nil {
		return nil, "", err
	}
	t.holes = true
	found, err := filepath.Glob(filepath.Join(dir, "??", "*.json.zst")) // sorted
	if err != nil || len(found) == 0 {
		return nil, "", fail.WithHint(fail.New(fail.BadInput, "open tape", dir, "there is no record in it"), "name the folder that --record wrote")
	}
	names := ""
	for _, f := range found {
		names += filepath.Base(f) + "\n"
	}
	return t, manifest.Hash([]byte(names))[:16], nil
}

// Replays says that the outside world is not to be asked.
func (t *Tape) Replays() bool { return t != nil && t.replay }

// record is a file's content.
type record struct {
	Tape     int             `json:"tape"`
	Kind     string          `json:"kind"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
}

var (
	packer, _   = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
)

// key is a request in its canonical form, and the file of its record.
func (t *Tape) key(kind string, request any) (canonical json.RawMessage, path string, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, "", fail.Wrap(fail.Bug, "name request", kind, err)
	}
	canonical = manifest.Canonical(text)
	sum := manifest.Hash([]byte(kind + "\n" + string(canonical)))
	return canonical, filepath.Join(t.dir, sum[:2], sum+".json.zst"), nil
}

// Get reads the response to a request into response, and says whether there was
// one. When the tape replays and has none, that is an error which names the request.
func (t *Tape) Get(kind string, request, response any) (bool, error) {
	if t == nil {
		return false, nil
	}
	canonical, path, err := t.key(kind, request)
	if err != nil {
		return false, err
	}
	packed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if !t.replay || t.holes {
			return false, nil
		}
		return false, &fail.Error{Kind: fail.BadInput, Op: "replay", Path: path, Err: errors.New("not recorded: " + kind + " " + shown(canonical)),
			Hint: "record again with what this run uses: another recipe, model or seed asks for other things"}
	}
	var r record
	if err == nil {
		var text []byte
		if text, err = unpacker.DecodeAll(packed, nil); err == nil {
			err = json.Unmarshal(text, &r)
		}
	}
	switch {
	case err == nil && r.Tape > Format:
		err = manifest.ErrNewer
	case err == nil && (r.Kind != kind || string(manifest.Canonical(r.Request)) != string(canonical)):
		err = errors.New("the record is of another request")
	case err == nil:
		err = json.Unmarshal(r.Response, response)
	}
	if err != nil {
		return false, fail.WithHint(fail.Wrap(fail.BadInput, "read record", path, err), "remove the file and record again")
	}
	return true, nil
}

// Put records the response to a request, in place of an older one.
func (t *Tape) Put(kind string, request, response any) error {
	if t == nil || t.replay {
		return nil
	}
	canonical, path, err := t.key(kind, request)
	if err != nil {
		return err
	}
	r := record{Tape: Format, Kind: kind, Request: canonical}
	if r.Response, err = json.Marshal(response); err != nil {
		return fail.Wrap(fail.Bug, "record", kind, err)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // for people
	if err := e.Encode(r); err != nil {
		return fail.Wrap(fail.Bug, "record", kind, err)
	}
	return atomicfile.WriteFile(path, packer.EncodeAll(text.Bytes(), nil))
}

// shown is a request as messages have it: cut in the middle, without secrets.
func shown(canonical []byte) string {
	r := []rune(secret.Scrub(string(canonical)))
	if len(r) > 400 {
		return string(r[:200]) + " … " + string(r[len(r)-200:])
	}
	return string(r)
}
