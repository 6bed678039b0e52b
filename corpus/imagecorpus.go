package corpus

import (
	"errors"
	"iter"
	"strconv"
	"strings"

	"searchloop/corpus/record"
)

// imageCorpusFormat reads the corpora of text-to-image search, one image and its
// title a row. Rows without an id are numbered from 0 over all files: the
// number is the row of the vector in an index made from them.
var imageCorpusFormat = Format{
	Name:      "image-corpus",
	Doc:       "corpora of image search: Parquet (or JSON lines) with image {bytes, path} or img_path, and contents or text",
	Fields:    "image {bytes, path} or img_path, contents or text; id",
	From:      "MM-DeepResearch: image_search_result_rag.parquet",
	Files:     map[string][]string{Passages: tableFiles},
	ImageDirs: []string{"images"},
	Passages: func(in Input) iter.Seq2[Row[Document], error] {
		return func(yield func(Row[Document], error) bool) {
			n := int64(-1)
			for _, path := range in.Files {
				for row, err := range rowsOf(path, []string{"image", "img_path"}, []string{"contents", "text"}) {
					if err != nil {
						yield(Row[Document]{}, err)
						return
					}
					n++
					if row.Err != nil {
						if !yield(bad[Document](path, row.N, strconv.FormatInt(n, 10), row.Err), nil) {
							return
						}
						continue
					}
					id, err := row.Get.text("id")
					if id == "" {
						id = strconv.FormatInt(n, 10)
					}
					out := Row[Document]{Path: path, N: row.N, ID: id, Load: func() (Document, error) { return imageDocument(row.Get) }}
					if !yield(out, err) || err != nil {
						return
					}
				}
			}
		}
	},
}

func imageDocument(get cells) (Document, error) {
	v, err := get.first("contents", "text")
	if err != nil {
		return Document{}, err
	}
	d := Document{Contents: v.String()}
	if strings.TrimSpace(d.Contents) == "" {
		return d, errors.New("the title is empty: neither contents nor text")
	}
	// The bytes are in image; img_path names a file of the machine where the
	// corpus was made and counts only without them.
	for _, column := range []string{"image", "img_path"} {
		cell, err := get(column)
		if err != nil {
			return d, err
		}
		pic, err := pictureOf(onlyItem(cell))
		if err != nil {
			return d, err
		}
		if pic != nil && (d.Image == nil || d.Image.Data == nil) {
			if d.Image = pic; pic.Data != nil {
				break
			}
		}
	}
	if d.Image == nil {
		return d, errors.New("the row has no image: neither image nor img_path")
	}
	return d, nil
}

// onlyItem unwraps a list of one image.
func onlyItem(v record.Value) record.Value {
	if v.Kind() == record.List && len(v.Items()) == 1 {
		return v.Items()[0]
	}
	return v
}
