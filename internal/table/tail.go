package table

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// tail holds the end of a file back, to correct its footer. For a column without
// bounds the library still writes a column index, which says that every page holds
// values between "" and "": readers that skip pages by that index (Spark,
// DataFusion) would find no row. The corrected footer names no such index.
type tail struct {
	w    io.Writer
	hold bool
	b    []byte
}

func (t *tail) Write(p []byte) (int, error) {
	if !t.hold {
		return t.w.Write(p)
	}
	t.b = append(t.b, p...)
	return len(p), nil
}

// finish writes the held end with its footer corrected.
func (t *tail) finish() error {
	n := len(t.b) - 8
	if n < 0 || string(t.b[n+4:]) != magic {
		return errors.New("the library wrote no footer")
	}
	size := int(binary.LittleEndian.Uint32(t.b[n:]))
	if size > n {
		return errors.New("the library wrote a footer in pieces")
	}
	var protocol thrift.CompactProtocol
	var footer format.FileMetaData
	if err := thrift.Unmarshal(&protocol, t.b[n-size:n], &footer); err != nil {
		return err
	}
	for i := range footer.RowGroups {
		columns := footer.RowGroups[i].Columns
		for j := range columns {
			if columns[j].MetaData.Type == format.ByteArray {
				columns[j].ColumnIndexOffset, columns[j].ColumnIndexLength = 0, 0
			}
		}
	}
	text, err := thrift.Marshal(&protocol, &footer)
	if err != nil {
		return err
	}
	out := append(t.b[:n-size], text...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(text)))
	_, err = t.w.Write(append(out, magic...))
	return err
}
