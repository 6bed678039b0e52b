package slurm

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/launch"
	"searchloop/internal/manifest"
)

// state is slurm.json in the launch folder: what was submitted, written before it
// is, so that a submitter that is killed finds it again.
type state struct {
	Run     string  `json:"run"`     // 16 random hex digits: what Slurm's job numbers are not, an identity
	Command string  `json:"command"` // digest of the command: other commands' tasks are no use
	Arrays  []array `json:"arrays"`

	path string
}

// array is one sbatch.
type array struct {
	Name  string      `json:"name"`         // --job-name; nobody else has it
	ID    string      `json:"id,omitempty"` // Slurm's number, for people; absent until sbatch has answered
	Tasks map[int]int `json:"tasks"`        // index in the array → task of the round
	Size  int         `json:"size"`
}

func statePath(out string) string { return filepath.Join(launch.Dir(out), "slurm.json") }

// digest of what tasks do: shards of equal digests are the same work.
func digest(a *launch.Array) string {
	text, _ := json.Marshal(struct {
		Command []string
		N       int
	}{a.Command, a.N})
	return manifest.Hash(text)
}

// recall reads the state of an earlier submitter; nil when there is none.
func recall(out string) (*state, error) { return recallAt(statePath(out)) }

func recallAt(path string) (*state, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := &state{path: path}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	return s, fail.WithHint(fail.Wrap(fail.Disk, "read state", path, err), "look with squeue for jobs of ours, cancel them and remove the file")
}

func begin(a *launch.Array) *state {
	id := make([]byte, 8)
	rand.Read(id) // does not fail
	return &state{Run: hex.EncodeToString(id), Command: digest(a), path: statePath(a.Out)}
}

func (s *state) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fail.Wrap(fail.Bug, "write state", s.path, err)
	}
	return atomicfile.WriteFile(s.path, append(text, '\n'))
}

// names are what the arrays are called.
func (s *state) names() (list []string) {
	for _, x := range s.Arrays {
		list = append(list, x.Name)
	}
	return list
}
