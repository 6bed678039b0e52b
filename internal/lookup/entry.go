package lookup

import (
	"encoding/binary"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/retry"
	"searchloop/internal/tape"
)

// An entry in the store: its version, flags, the time of the answer in Unix
// seconds, and the body, packed.
const (
	version   = 1
	flagEmpty = 1
	entryHead = 10
)

var (
	packer, _   = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(1<<30))
)

func encode(a Answer) []byte {
	b := make([]byte, entryHead, entryHead+len(a.Body)/2)
	b[0] = version
	if a.Empty {
		b[1] = flagEmpty
	}
	binary.LittleEndian.PutUint64(b[2:], uint64(a.At.Unix()))
	return packer.EncodeAll(a.Body, b)
}

// decode reads an entry; ok is false for one of another version or a damaged one.
func decode(b []byte) (a Answer, ok bool) {
	if len(b) < entryHead || b[0] != version {
		return a, false
	}
	body, err := unpacker.DecodeAll(b[entryHead:], nil)
	if err != nil {
		return a, false
	}
	return Answer{Body: body, Empty: b[1]&flagEmpty != 0, At: time.Unix(int64(binary.LittleEndian.Uint64(b[2:])), 0).UTC(), Cached: true}, true
}

// taken is an answer as it is recorded.
type taken struct {
	At    time.Time   `json:"at,omitzero"`
	Empty bool        `json:"empty,omitempty"`
	Text  string      `json:"text,omitempty"`  // the body when it is UTF-8
	Bytes []byte      `json:"bytes,omitempty"` // and when it is not
	Fault *tape.Fault `json:"fault,omitempty"`
}

func recorded(a Answer, f *retry.Fault) taken {
	r := taken{At: a.At, Empty: a.Empty, Fault: tape.FaultOf(f)}
	if utf8.Valid(a.Body) {
		r.Text = string(a.Body)
	} else {
		r.Bytes = a.Body
	}
	return r
}

func (r taken) answer() Answer {
	a := Answer{Body: r.Bytes, Empty: r.Empty, At: r.At, Cached: true}
	if a.Body == nil {
		a.Body = []byte(r.Text)
	}
	return a
}
