package corpus

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/token"
)

// Chunking cuts passages into pieces of at most Tokens tokens, of which the last
// Overlap or a few more begin the next piece. Pieces end between words; tokens
// are counted word by word. A first line in quotation marks is the title: it
// begins every piece and counts. Only a word that is longer than a piece is cut.
// Pieces of one passage are called <id>#0, <id>#1, ...; a passage that is short
// enough stays as it is, under its own id.
type Chunking struct {
	Tokens, Overlap int
	Tokenizer       string // folder of tokenizer.json (byte-level BPE or WordPiece) or vocab.txt
}

// chunkParams is what pieces depend on.
type chunkParams struct {
	Tokens, Overlap int
	Tokenizer       map[string]string // SHA-256 by file name
}

func (c Chunking) params() (*chunkParams, error) {
	p := &chunkParams{c.Tokens, c.Overlap, map[string]string{}}
	for _, name := range []string{"tokenizer.json", "vocab.txt", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(c.Tokenizer, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fail.Wrap(fail.BadInput, "read tokenizer", c.Tokenizer, err)
		}
		p.Tokenizer[name] = manifest.Hash(data)
	}
	return p, nil
}

// chunker counts tokens and remembers what common words have.
type chunker struct {
	Chunking
	count func(word string) int
	known map[string]int
}

func newChunker(c Chunking) (*chunker, error) {
	switch {
	case c.Overlap < 0 || c.Overlap > c.Tokens/2:
		return nil, fail.New(fail.Usage, "prep", "", "--chunk-overlap %d: from 0 to half of --chunk-tokens", c.Overlap)
	case c.Tokenizer == "":
		return nil, fail.New(fail.Usage, "prep", "", "--chunk-tokens needs --tokenizer")
	}
	k := &chunker{Chunking: c, known: map[string]int{}}
	bpe, err := token.LoadBPE(c.Tokenizer)
	if err == nil {
		var buf []int32
		k.count = func(w string) int {
			buf = bpe.AppendOrdinary(buf[:0], w)
			return len(buf)
		}
		return k, nil
	}
	wp, werr := token.LoadWordPiece(c.Tokenizer)
	if werr != nil {
		if _, missing := os.Stat(filepath.Join(c.Tokenizer, "vocab.txt")); missing == nil {
			err = werr
		}
		return nil, err
	}
	const marks = 2 // [CLS] and [SEP]
	k.count = func(w string) int { return len(wp.Encode(w, len(w)+marks+1)) - marks }
	return k, nil
}

func (k *chunker) tokens(word string) int {
	if n, ok := k.known[word]; ok {
		return n
	}
	n := max(k.count(word), 1)
	if len(k.known) < 1<<20 && len(word) < 64 {
		k.known[strings.Clone(word)] = n
	}
	return n
}

// word is a piece of text with the white space before it.
type word struct {
	from, to int // with the space; of the text
	n        int // tokens
}

// words cuts s; words that alone exceed limit are halved.
func (k *chunker) words(s string, limit int) []word {
	var out []word
	for i := 0; i < len(s); {
		from := i
		for i < len(s) {
			r, n := utf8.DecodeRuneInString(s[i:])
			if !unicode.IsSpace(r) {
				break
			}
			i += n
		}
		start := i
		for i < len(s) {
			r, n := utf8.DecodeRuneInString(s[i:])
			if unicode.IsSpace(r) {
				break
			}
			i += n
		}
		if start < i {
			out = k.halves(out, s, from, start, i, limit)
		}
	}
	return out
}

func (k *chunker) halves(out []word, s string, from, start, to, limit int) []word {
	n := k.tokens(s[from:to]) // with the space: a byte-level BPE makes tokens of it
	mid := start + (to-start)/2
	for mid < to && !utf8.RuneStart(s[mid]) {
		mid++
	}
	if n <= limit || mid == start || mid == to {
		return append(out, word{from, to, n})
	}
	return k.halves(k.halves(out, s, from, start, mid, limit), s, mid, mid, to, limit)
}

// cut gives the pieces of a passage.
func (k *chunker) cut(contents string) []string {
	title, body := "", contents
	if first, rest, ok := strings.Cut(contents, "\n"); ok && len(first) > 1 && first[0] == '"' && first[len(first)-1] == '"' {
		title, body = first+"\n", rest
	}
	limit := k.Tokens
	for _, w := range k.words(title, k.Tokens) {
		limit -= w.n
	}
	if limit < k.Tokens/2 { // a title that long is text
		title, body, limit = "", contents, k.Tokens
	}
	words := k.words(body, limit)
	var out []string
	for from := 0; from < len(words); {
		to, n := from, 0
		for to < len(words) && (to == from || n+words[to].n <= limit) {
			n += words[to].n
			to++
		}
		if from == 0 && to == len(words) {
			return []string{contents}
		}
		piece := strings.TrimSpace(body[words[from].from:words[to-1].to])
		out = append(out, title+piece)
		if to == len(words) {
			break
		}
		// Step back over the overlap, but never to where this piece began.
		next := to
		for n := 0; next > from+1 && n < k.Overlap; next-- {
			n += words[next-1].n
		}
		from = next
	}
	if len(out) == 0 {
		return []string{contents}
	}
	return out
}

// chunked cuts the passages of rows.
func (k *chunker) chunked(rows iter.Seq2[Row[Document], error]) iter.Seq2[Row[Document], error] {
	return func(yield func(Row[Document], error) bool) {
		for row, err := range rows {
			d, ok := loaded(&row, err)
			if !ok {
				if !yield(row, err) {
					return
				}
				continue
			}
			pieces := []string{d.Contents}
			if d.Image == nil && utf8.ValidString(d.Contents) {
				pieces = k.cut(d.Contents)
			}
			id := row.ID
			for i, p := range pieces {
				if len(pieces) > 1 && id != "" {
					row.ID = fmt.Sprintf("%s#%d", id, i)
				}
				row.Load = func() (Document, error) { return Document{Contents: p, Image: d.Image}, nil }
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// loaded loads a row; false when there is nothing to cut or compare.
func loaded(row *Row[Document], err error) (Document, bool) {
	if err != nil || row.Err != nil {
		return Document{}, false
	}
	d, err := row.Load()
	row.Load = func() (Document, error) { return d, err }
	return d, err == nil
}

// errSame is the reason of --unique.
var errSame = errors.New("an earlier passage has the same contents (--unique)")

// distinct leaves out passages whose contents an earlier one has to the byte. It
// remembers 16 bytes and the map's share for each passage.
func distinct(rows iter.Seq2[Row[Document], error]) iter.Seq2[Row[Document], error] {
	return func(yield func(Row[Document], error) bool) {
		seen := map[[16]byte]struct{}{}
		for row, err := range rows {
			d, ok := loaded(&row, err)
			if ok && d.Image == nil {
				sum := sha256.Sum256([]byte(d.Contents))
				key := [16]byte(sum[:16])
				if _, again := seen[key]; again {
					row.Err, row.Load = errSame, nil
				}
				seen[key] = struct{}{}
			}
			if !yield(row, err) {
				return
			}
		}
	}
}
