package retrieve

import (
	"bytes"
	"encoding/json"
	"strconv"

	"searchloop/indexer"
)

// textDocument is a corpus row of the text engine.
type textDocument struct {
	ID       string `json:"id"`
	Contents string `json:"contents"`
}

// imageDocument is a corpus row of the image engine, without its image.
type imageDocument struct {
	ImgPath  string `json:"img_path"`
	Text     string `json:"text"`
	Contents string `json:"contents"`
}

// scored is a document with its inner product.
type scored struct {
	Document any     `json:"document"`
	Score    float32 `json:"score"`
}

// answer is the body of a reply: a list of hits per query, in the order of the
// queries; hits are scored documents or, without scores, the documents.
type answer struct {
	Result [][]any `json:"result"`
}

// document is the corpus row of a hit. imagePath finds an image's file.
func document(h indexer.Hit, imagePath func(sha string) (string, error)) (any, error) {
	p := h.Passage
	if p.ImageID == "" {
		return textDocument{p.ID, p.Contents}, nil
	}
	path, err := imagePath(p.ImageID)
	if err != nil {
		return nil, err
	}
	return imageDocument{ImgPath: path, Text: p.Contents, Contents: p.Contents}, nil
}

// encode writes v as JSON with characters as they are, not escaped for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
