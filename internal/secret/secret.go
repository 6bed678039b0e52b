// Package secret holds keys and tokens in a type that prints as a mask, and masks
// them in everything that passes through a Scrubber. Secrets come from the
// environment, or from a file that only its owner can read; nothing else is
// accepted. It stores no secret on disk; files record the variable's name.
package secret

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"

	"searchloop/internal/fail"
)

const mask = "***"

// Value is a secret. It formats, marshals and logs as a mask. The zero Value is
// "no secret".
type Value struct{ v *string } // a pointer, so that reflection-based printers meet no text

// known are all secrets of the process, longest first, so that one which
// contains another is masked whole.
var known struct {
	sync.RWMutex
	list []string
}

// New makes a secret of text and registers it with every Scrubber. Surrounding
// white space, as files and shells leave it, is dropped.
func New(text string) Value {
	text = strings.TrimSpace(text)
	if text == "" {
		return Value{}
	}
	known.Lock()
	defer known.Unlock()
	i := sort.Search(len(known.list), func(i int) bool {
		return len(known.list[i]) < len(text) || len(known.list[i]) == len(text) && known.list[i] >= text
	})
	if i == len(known.list) || known.list[i] != text {
		known.list = append(known.list[:i], append([]string{text}, known.list[i:]...)...)
	}
	return Value{&text}
}

// FromEnv is the secret in the environment variable name, or else the one in the
// file that name_FILE points to; no secret when neither is set. A file that
// cannot be read counts as none here; use FromFile to be told.
func FromEnv(name string) Value {
	if v := os.Getenv(name); v != "" {
		return New(v)
	}
	if path := os.Getenv(name + "_FILE"); path != "" {
		if v, err := FromFile(path); err == nil {
			return v
		}
	}
	return Value{}
}

// FromFile reads a secret from a file that group and others cannot access.
func FromFile(path string) (Value, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Value{}, fail.Wrap(fail.Usage, "read secret", path, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Value{}, fail.WithHint(fail.New(fail.Usage, "read secret", path, "others may read the file"), "chmod 600 "+path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Value{}, fail.Wrap(fail.Usage, "read secret", path, err)
	}
	return New(string(text)), nil
}

// Reveal is the secret's text, "" for none. Call it only where the text is sent.
func (v Value) Reveal() string {
	if v.v == nil {
		return ""
	}
	return *v.v
}

// IsZero says whether there is no secret.
func (v Value) IsZero() bool { return v.v == nil }

// String is the mask, or "" for no secret.
func (v Value) String() string {
	if v.v == nil {
		return ""
	}
	return mask
}

// GoString is the mask.
func (v Value) GoString() string { return v.String() }

// Format prints the mask whatever the verb.
func (v Value) Format(s fmt.State, _ rune) { io.WriteString(s, v.String()) }

// MarshalText is the mask; it serves JSON, YAML and slog.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
