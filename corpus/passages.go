package corpus

import (
	"errors"
	"iter"
	"strings"

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

// passageLines is the path that tens of millions of lines take: fields are found
// by a scan and only those that are needed are decoded.
func passageLines(path string, yield func(Row[Document], error) bool) bool {
	for line, err := range record.Lines(path) {
		if err != nil {
			yield(Row[Document]{}, err)
			return false
		}
		row := Row[Document]{Path: path, N: line.N, Err: line.Err}
		if row.Err == nil {
			var f passageFields
			if row.Err = f.scan(line.Data); row.Err == nil {
				row.ID = f.id
				row.Load = f.load
			}
		}
		if !yield(row, nil) {
			return false
		}
	}
	return true
}

// passageFields are the undecoded fields of a line.
type passageFields struct {
	id                    string
	contents, title, text []byte
}

func (f *passageFields) scan(line []byte) error {
	return record.EachField(line, func(name, raw []byte) (err error) {
		switch string(name) {
		case "id", "_id", "docid":
			f.id, err = plainText(raw)
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
		c, err := plainText(f.contents)
		return document(c, "", "", err)
	}
	title, err := plainText(f.title)
	if err != nil {
		return Document{}, err
	}
	text, err := plainText(f.text)
	return document("", title, text, err)
}

// plainText decodes a JSON text or number; null and nothing are "".
func plainText(raw []byte) (string, error) {
	if s, ok, err := record.UnquoteJSON(raw); ok || err != nil {
		return s, err
	}
	if raw == nil {
		return "", nil
	}
	v, err := record.ParseJSON(raw)
	if err != nil {
		return "", err
	}
	s, ok := v.AsText()
	if !ok && !v.IsNull() {
		return "", errors.New(v.Kind().String() + " stands where text is expected")
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
