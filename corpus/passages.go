package corpus

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"unsafe"

	"searchloop/corpus/record"
)

// passagesFormat reads text corpora in the form of the published ones
// (wiki-18, merged_reindexed_new): one JSON object a line with id and contents.
// The order of lines is the order of vectors in the index made from them. Title
// and text apart (BEIR's form) are joined in the published form, the title in
// quotation marks on the first line.
var passagesFormat = Format{
	Name:   "passages",
	Doc:    "text corpora: JSON lines {id, contents} or {_id, title, text}, plain, .gz or .zst; or Parquet with these columns",
	Fields: "id, contents; or _id, title, text",
	From:   "huggingface.co/datasets/PeterJinGo/wiki-18-corpus: wiki-18.jsonl.gz; MM-DeepResearch: merged_reindexed_new.jsonl",
	Files:  map[string][]string{Passages: tableFiles},
	Passages: func(in Input) iter.Seq2[Row[Document], error] {
		return func(yield func(Row[Document], error) bool) {
			for _, path := range in.Files {
				kind, err := tableKind(path)
				if err != nil {
					yield(Row[Document]{}, err)
					return
				}
				read := passageColumns
				if kind == "json" {
					read = passageLines
				}
				if !read(path, yield) {
					return
				}
			}
		}
	},
}

// passageLines is the path that tens of millions of lines take: lines are read
// on all cores, and of each only the fields that are needed are decoded.
func passageLines(path string, yield func(Row[Document], error) bool) bool {
	for row, err := range record.Flat(record.MapBlocks(path, func(b record.Block) []Row[Document] { return passageRows(path, b) })) {
		if !yield(row, err) || err != nil {
			return false
		}
	}
	return true
}

// passageRows reads the lines of a block, whose texts share memory.
func passageRows(path string, b record.Block) []Row[Document] {
	f, out := passageFields{texts: make([]byte, 0, b.Size())}, make([]Row[Document], 0, b.Count())
	for l := range b.Lines() {
		out = append(out, passageLine(path, l, &f))
	}
	return out
}

// passageLine reads a line.
func passageLine(path string, line record.Line, f *passageFields) Row[Document] {
	d, err, unfit := f.read(line)
	row := Row[Document]{Path: path, N: line.N, ID: f.id, Err: err}
	if err == nil {
		row.Load = func() (Document, error) { return d, unfit }
	}
	return row
}

// passageFields are the undecoded fields of a line.
type passageFields struct {
	id                    string
	contents, title, text []byte
	texts                 []byte // what was decoded, of all lines of a block
}

// read reads a line: its id into f, which is "" when err says that it is none; unfit
// says what is wrong with the rest. The text is decoded at once: that is the work
// which is worth a core of its own.
func (f *passageFields) read(line record.Line) (d Document, err, unfit error) {
	f.id = ""
	if err = line.Err; err == nil {
		err = f.scan(line.Data)
	}
	if err != nil {
		f.id = ""
		return d, err, nil
	}
	d, unfit = f.load()
	d.checked = true // JSON is
	return d, nil, unfit
}

func (f *passageFields) scan(line []byte) error {
	f.id, f.contents, f.title, f.text = "", nil, nil, nil
	return record.EachField(line, func(name, raw []byte) (err error) {
		switch string(name) {
		case "id", "_id", "docid":
			f.id, err = f.plain("id", raw)
		case "contents":
			f.contents = raw
		case "title":
			f.title = raw
		case "text":
			f.text = raw
		}
		return err
	})
}

func (f *passageFields) load() (Document, error) {
	if f.contents != nil {
		c, err := f.plain("contents", f.contents)
		return document(c, "", "", err)
	}
	title, err := f.plain("title", f.title)
	if err != nil {
		return Document{}, err
	}
	text, err := f.plain("text", f.text)
	return document("", title, text, err)
}

// plain decodes a JSON text or number of a field; null and nothing are "".
func (f *passageFields) plain(field string, raw []byte) (string, error) {
	from := len(f.texts)
	if texts, ok, err := record.AppendUnquoted(f.texts, raw); ok || err != nil {
		if f.texts = texts; err != nil {
			return "", fmt.Errorf("%s: %w", field, err)
		}
		return unsafe.String(unsafe.SliceData(texts[from:]), len(texts)-from), nil
	}
	if raw == nil {
		return "", nil
	}
	v, err := record.ParseJSON(raw)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	s, ok := v.AsText()
	if !ok && !v.IsNull() {
		return "", fmt.Errorf("%s is %s, not text", field, v.Kind())
	}
	return s, nil
}

// document checks and joins the parts of a passage.
func document(contents, title, text string, err error) (Document, error) {
	switch {
	case err != nil:
		return Document{}, err
	case strings.TrimSpace(contents) != "":
		return Document{Contents: contents}, nil
	case strings.TrimSpace(text) == "":
		return Document{}, errors.New("the passage is empty")
	case strings.TrimSpace(title) == "":
		return Document{Contents: text}, nil
	}
	return Document{Contents: titled(title, text)}, nil
}

// titled is the published form of a passage with a title.
func titled(title, text string) string {
	return `"` + strings.Join(strings.Fields(title), " ") + "\"\n" + text
}

func passageColumns(path string, yield func(Row[Document], error) bool) bool {
	for row, err := range rowsOf(path, []string{"id", "_id", "docid"}, []string{"contents", "text"}) {
		if err != nil {
			yield(Row[Document]{}, err)
			return false
		}
		id, err := row.Get.text("id", "_id", "docid")
		out := Row[Document]{Path: path, N: row.N, ID: id, Load: func() (Document, error) {
			contents, err := row.Get("contents")
			if err != nil {
				return Document{}, err
			}
			title, err := row.Get("title")
			if err != nil {
				return Document{}, err
			}
			text, err := row.Get("text")
			return document(contents.String(), title.String(), text.String(), err)
		}}
		if !yield(out, err) || err != nil {
			return false
		}
	}
	return true
}
