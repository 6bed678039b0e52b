// Package tfevents writes scalars to the event files that TensorBoard reads.
//
// A file is a sequence of TFRecords, each a little-endian length, its masked
// CRC32C, an Event as protocol buffer, and the masked CRC32C of that
// (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). Of
// events only a file's version, the start of a session and scalar summaries are
// written; nothing is read.
package tfevents

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"searchloop/internal/fail"
)

// Scalar is one point of a curve.
type Scalar struct {
	Tag   string
	Value float64 // stored as float32
}

// Writer is one event file, for one goroutine.
type Writer struct{ f *os.File }

// Create begins a new file in dir for steps from the given one on. What older
// files of the folder say of these steps no longer counts: they are of a run that
// was killed and now goes on.
func Create(dir string, step int64, at time.Time) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fail.Wrap(fail.Disk, "open event file", dir, err)
	}
	path := filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%d.searchloop.%d", at.Unix(), os.Getpid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "open event file", path, err)
	}
	w := &Writer{f}
	e := event(0, at)
	e = protowire.AppendTag(e, eventVersion, protowire.BytesType)
	if err := w.record(protowire.AppendString(e, "brain.Event:2")); err != nil {
		f.Close()
		return nil, err
	}
	e = event(step, at)
	e = protowire.AppendTag(e, eventSession, protowire.BytesType)
	var session []byte
	session = protowire.AppendTag(session, sessionStatus, protowire.VarintType)
	session = protowire.AppendVarint(session, sessionStart)
	if err := w.record(protowire.AppendBytes(e, session)); err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// Scalars adds the points of one step.
func (w *Writer) Scalars(step int64, at time.Time, points []Scalar) error {
	var summary []byte
	for _, p := range points {
		var value []byte
		value = protowire.AppendTag(value, valueTag, protowire.BytesType)
		value = protowire.AppendString(value, p.Tag)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(p.Value)))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	e := event(step, at)
	e = protowire.AppendTag(e, eventSummary, protowire.BytesType)
	return w.record(protowire.AppendBytes(e, summary))
}

// Close closes the file.
func (w *Writer) Close() error {
	return fail.Wrap(fail.Disk, "write event file", w.f.Name(), w.f.Close())
}

// Numbers of fields, and one value, in TensorFlow's protocol buffers.
const (
	eventTime, eventStep, eventVersion, eventSummary, eventSession = 1, 2, 3, 5, 7

	sessionStatus, sessionStart        = 1, 1
	summaryValue                       = 1
	valueTag, valueSimple              = 1, 2
	mask                        uint32 = 0xa282ead8
)

func event(step int64, at time.Time) []byte {
	var e []byte
	e = protowire.AppendTag(e, eventTime, protowire.Fixed64Type)
	e = protowire.AppendFixed64(e, math.Float64bits(float64(at.UnixNano())/1e9))
	e = protowire.AppendTag(e, eventStep, protowire.VarintType)
	return protowire.AppendVarint(e, uint64(step))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is a checksum as TFRecords hold it, so that a record of records does not
// check itself.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + mask
}

// record is written by one call, so that a reader sees whole ones.
func (w *Writer) record(data []byte) error {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, data...)
	b = binary.LittleEndian.AppendUint32(b, masked(data))
	_, err := w.f.Write(b)
	return fail.Wrap(fail.Disk, "write event file", w.f.Name(), err)
}
