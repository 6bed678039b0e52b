package corpus

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"slices"
	"strings"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
)

// cells gives the columns of one row of a file whose schema is not ours; an
// absent column is null. Its error is one of the file.
type cells func(column string) (record.Value, error)

// rowCells is a row of rowsOf. Err is set when the row alone is unusable.
type rowCells struct {
	N   int64
	Get cells
	Err error
}

// rowsOf goes through the rows of a Parquet, Arrow, CSV or JSON file. Parquet and
// Arrow are known by their first bytes, CSV by its name. Each group of need lists
// names of which a file with a schema must have one as a column; JSON rows are
// checked where they are used.
func rowsOf(path string, need ...[]string) iter.Seq2[rowCells, error] {
	return func(yield func(rowCells, error) bool) {
		kind, err := tableKind(path)
		switch {
		case err != nil:
			yield(rowCells{}, err)
		case kind == "parquet":
			parquetRows(path, need, yield)
		case kind == "arrow":
			streamedRows(path, "read Arrow", record.Arrow(path), need, yield)
		case kind == "csv":
			streamedRows(path, "read CSV", record.CSV(path), need, yield)
		default:
			jsonRows(path, need, yield)
		}
	}
}

// tableKind says which reader a file needs. A Parquet or Arrow file by name goes
// to its reader whatever it holds, so that a damaged one is called that.
func tableKind(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fail.Wrap(fail.BadInput, "open", path, err)
	}
	defer f.Close()
	var head [8]byte
	n, err := io.ReadFull(f, head[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fail.Wrap(fail.BadInput, "read", path, err)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(path), ".gz"), ".zst")
	switch {
	case string(head[:4]) == "PAR1" || strings.HasSuffix(name, ".parquet") || strings.HasSuffix(name, ".pq"):
		return "parquet", nil
	case record.IsArrow(head[:n]) || strings.HasSuffix(name, ".arrow") || strings.HasSuffix(name, ".feather"):
		return "arrow", nil
	case strings.HasSuffix(name, ".csv") || strings.HasSuffix(name, ".tsv"):
		return "csv", nil
	}
	return "json", nil
}

// streamedRows yields the rows of a file with a schema that is read from front
// to back.
func streamedRows(path, op string, rows iter.Seq2[record.TableRow, error], need [][]string, yield func(rowCells, error) bool) {
	first := true
	for r, err := range rows {
		if err != nil {
			yield(rowCells{}, err)
			return
		}
		if first {
			first = false
			for _, names := range need {
				if !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(r.Columns, n) }) {
					yield(rowCells{}, missingColumn(op, path, names, r.Columns))
					return
				}
			}
		}
		out := rowCells{N: r.N, Err: r.Err}
		if r.Err == nil {
			out.Get = r.Get
		}
		if !yield(out, nil) {
			return
		}
	}
}

func missingColumn(op, path string, names, have []string) error {
	e := fail.New(fail.BadInput, op, path, "no column %s", strings.Join(names, " or "))
	e.Hint = "the columns are " + strings.Join(have, ", ") + "; is --format right?"
	return e
}

func parquetRows(path string, need [][]string, yield func(rowCells, error) bool) {
	p, err := record.OpenParquet(path)
	if err != nil {
		yield(rowCells{}, err)
		return
	}
	defer p.Close()
	for _, names := range need {
		if !anyColumn(p, names) {
			yield(rowCells{}, missingColumn("read Parquet", path, names, p.Columns()))
			return
		}
	}
	for n := range p.Rows() {
		get := func(column string) (record.Value, error) { return p.Get(n, column) }
		if !yield(rowCells{N: n + 1, Get: get}, nil) {
			return
		}
	}
}

func anyColumn(p *record.Parquet, names []string) bool {
	for _, n := range names {
		if p.Has(n) {
			return true
		}
	}
	return false
}

func jsonRows(path string, need [][]string, yield func(rowCells, error) bool) {
	fields := []string{"id", "data_id", "question", "query", "text", "contents", "prompt", "image", "images", "answers"}
	for item, err := range record.Items(path, append(fields, slices.Concat(need...)...)...) {
		if err != nil {
			yield(rowCells{}, err)
			return
		}
		row := rowCells{N: item.N, Err: item.Err}
		if row.Err == nil {
			v, err := record.ParseJSON(item.Raw)
			switch {
			case err != nil:
				row.Err = err
			case v.Kind() != record.Struct:
				row.Err = fmt.Errorf("the row is %s, not an object", v.Kind())
			default:
				row.Get = func(column string) (record.Value, error) {
					if x := v.Get(column); !x.IsNull() || item.Key == "" || column != "id" {
						return x, nil
					}
					return record.TextOf(item.Key), nil
				}
			}
		}
		if !yield(row, nil) {
			return
		}
	}
}

// first gives the first of the columns that is not null. A name with dots that
// is no column leads into structs.
func (get cells) first(columns ...string) (record.Value, error) {
	for _, c := range columns {
		v, err := get(c)
		if root, rest, ok := strings.Cut(c, "."); ok && err == nil && v.IsNull() {
			if v, err = get(root); err == nil {
				v = v.Get(strings.Split(rest, ".")...)
			}
		}
		if err != nil || !v.IsNull() {
			return v, err
		}
	}
	return record.Value{}, nil
}

// text gives the first of the columns that is not null, as text.
func (get cells) text(columns ...string) (string, error) {
	v, err := get.first(columns...)
	return strings.TrimSpace(v.String()), err
}

// picturesOf reads an image cell: one image or a list of them.
func picturesOf(v record.Value) ([]Picture, error) {
	if v.Kind() != record.List {
		p, err := pictureOf(v)
		if p == nil || err != nil {
			return nil, err
		}
		return []Picture{*p}, nil
	}
	if data, ok := v.AsBytes(); ok { // one image as a list of its bytes
		return []Picture{{Data: data}}, nil
	}
	var out []Picture
	for i, x := range v.Items() {
		p, err := pictureOf(x)
		if err == nil && p == nil {
			err = errors.New("neither bytes nor a path")
		}
		if err != nil {
			return nil, fmt.Errorf("image %d: %w", i+1, err)
		}
		out = append(out, *p)
	}
	return out, nil
}

// pictureOf reads one image: bytes, a struct of bytes and path in which the
// bytes count, a path, or a data URL. A null, or a struct of nulls, is no image.
func pictureOf(v record.Value) (*Picture, error) {
	switch v.Kind() {
	case record.Null:
		return nil, nil
	case record.Struct:
		if data, ok := v.AsBytes(); ok { // {"0": 137, "1": 80, ...}
			return &Picture{Data: data}, nil
		}
		if b := v.Get("bytes"); b.Kind() == record.Text { // JSON has no bytes
			data, err := base64.StdEncoding.DecodeString(b.String())
			if err != nil {
				return nil, fmt.Errorf("the image's bytes are not base64: %w", err)
			}
			return &Picture{Data: data}, nil
		} else if !b.IsNull() {
			return pictureOf(b)
		}
		named := false
		for name := range v.Fields() {
			named = named || name == "bytes" || name == "path"
		}
		if !named {
			return nil, errors.New("an object without bytes or path stands where an image is expected")
		}
		return pictureOf(v.Get("path"))
	case record.Text:
		return pathPicture(v.String())
	}
	if data, ok := v.AsBytes(); ok {
		return &Picture{Data: data}, nil
	}
	return nil, fmt.Errorf("%s stands where an image is expected", v.Kind())
}

func pathPicture(s string) (*Picture, error) {
	if data := bareBase64(s); data != nil {
		return &Picture{Data: data}, nil
	}
	switch scheme, rest, _ := strings.Cut(s, ":"); scheme {
	case "":
		return nil, nil
	case "data":
		kind, data, ok := strings.Cut(rest, ",")
		if !ok || !strings.HasSuffix(kind, ";base64") {
			return nil, errors.New("the image is a data URL without base64")
		}
		b, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("the image is a data URL with broken base64: %w", err)
		}
		return &Picture{Data: b}, nil
	case "http", "https":
		return nil, errors.New("the image is a web address: fetch it first and name the file")
	case "file":
		u, err := url.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("the image's address: %w", err)
		}
		return &Picture{Path: u.Path}, nil
	}
	return &Picture{Path: s}, nil
}

// bareBase64 decodes a text that is an image in base64 and nothing else: no path
// is so long and decodes to the first bytes of an image.
func bareBase64(s string) []byte {
	const head = 64
	if len(s) < head {
		return nil
	}
	first, err := base64.StdEncoding.DecodeString(s[:head])
	if len(s) == head || err != nil && strings.ContainsAny(s[:head], "=") {
		first, err = base64.StdEncoding.DecodeString(s)
	}
	if err != nil || imageExt(first) == "" {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return data
}

// placeholder stands in a question's text for an image.
const placeholder = "<image>"

// bareText is a question without image placeholders, and how many it had.
func bareText(s string) (text string, shown int) {
	shown = strings.Count(s, placeholder)
	return strings.TrimSpace(strings.ReplaceAll(s, placeholder, "")), shown
}
