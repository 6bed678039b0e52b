// Package vectors is the file format of embeddings: Arrow IPC files with an id
// and a float32 vector a row, and in the schema's metadata the space the vectors
// live in. Ids and vectors go in, the same come out in the same order, whatever
// wrote the file: any Arrow reader opens ours, and ours opens files of others
// that carry the metadata.
//
// It computes no vectors and searches none. The format is described in
// docs/vectors.md.
package vectors

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Schema and Version name the dataset in manifests.
const (
	Schema  = "vectors"
	Version = 1
)

// Space says how vectors were made. Two vectors may be compared only when their
// spaces are equal: another encoder, pooling or length limit gives numbers that
// look alike and mean nothing together.
type Space struct {
	Encoder       string `json:"encoder"` // SHA-256 over the encoder's files, or ServedModel
	Dim           int    `json:"dim"`
	Pooling       string `json:"pooling"` // mean or cls, or ServedPooling
	Normalized    bool   `json:"normalized"`
	MaxTokens     int    `json:"max_tokens"` // longest sequence, with the marks at both ends; 0: as the server has it
	QueryPrefix   string `json:"query_prefix"`
	PassagePrefix string `json:"passage_prefix"`
	Content       string `json:"content,omitempty"` // what the vectors are of: texts, or Images
}

// Images is the Content of vectors that were made from passages' images.
const Images = "image"

// ServedPooling is the Pooling of vectors that a server made: it does not say how.
const ServedPooling = "served"

const servedPrefix = "model:"

// ServedModel is the Encoder of a space whose encoder runs in a server: what the
// server calls it, since its files are not seen.
func ServedModel(name string) string { return servedPrefix + name }

// Served is the name of the server's model; false for an encoder in a folder.
func (s Space) Served() (model string, ok bool) { return strings.CutPrefix(s.Encoder, servedPrefix) }

// EncoderName names the encoder in a few letters, for people.
func (s Space) EncoderName() string { return short(s.Encoder) }

// Diff says in words where s and o differ, "" when they are equal.
func (s Space) Diff(o Space) string {
	var d []string
	add := func(what string, a, b any) {
		if a != b {
			d = append(d, fmt.Sprintf("%s %v and %v", what, a, b))
		}
	}
	add("encoder", short(s.Encoder), short(o.Encoder))
	if s.Encoder != o.Encoder && len(d) == 0 {
		d = append(d, "encoder "+s.Encoder+" and "+o.Encoder)
	}
	add("dimension", s.Dim, o.Dim)
	add("pooling", s.Pooling, o.Pooling)
	add("normalized", s.Normalized, o.Normalized)
	add("max tokens", s.MaxTokens, o.MaxTokens)
	add("query prefix", strconv.Quote(s.QueryPrefix), strconv.Quote(o.QueryPrefix))
	add("passage prefix", strconv.Quote(s.PassagePrefix), strconv.Quote(o.PassagePrefix))
	add("content", cmp.Or(s.Content, "text"), cmp.Or(o.Content, "text"))
	return strings.Join(d, ", ")
}

func short(encoder string) string {
	if strings.HasPrefix(encoder, servedPrefix) {
		return encoder
	}
	return encoder[:min(12, len(encoder))]
}

// The keys of the schema's metadata, in the order they are written.
const (
	keySchema  = "searchloop.schema"
	keyEncoder = "searchloop.encoder"
	keyDim     = "searchloop.dim"
	keyPooling = "searchloop.pooling"
	keyNorm    = "searchloop.normalized"
	keyTokens  = "searchloop.max_tokens"
	keyQuery   = "searchloop.query_prefix"
	keyPassage = "searchloop.passage_prefix"
	keyContent = "searchloop.content" // not there: texts
)

func (s Space) metadata() (keys, values []string) {
	keys = []string{keySchema, keyEncoder, keyDim, keyPooling, keyNorm, keyTokens, keyQuery, keyPassage}
	values = []string{fmt.Sprintf("%s/%d", Schema, Version), s.Encoder, strconv.Itoa(s.Dim), s.Pooling, strconv.FormatBool(s.Normalized),
		strconv.Itoa(s.MaxTokens), s.QueryPrefix, s.PassagePrefix}
	if s.Content != "" {
		keys, values = append(keys, keyContent), append(values, s.Content)
	}
	return keys, values
}

// spaceOf reads what metadata wrote.
func spaceOf(get func(key string) (string, bool)) (Space, error) {
	var s Space
	var err error
	value := func(key string) string {
		v, ok := get(key)
		if !ok && err == nil {
			err = fmt.Errorf("schema metadata lacks %q", key)
		}
		return v
	}
	number := func(key string) int {
		n, e := strconv.Atoi(value(key))
		if e != nil && err == nil {
			err = fmt.Errorf("schema metadata %q is not a number", key)
		}
		return n
	}
	if have, want := value(keySchema), fmt.Sprintf("%s/%d", Schema, Version); err == nil && have != want {
		return s, fmt.Errorf("schema is %q, this program reads %q", have, want)
	}
	s.Encoder, s.Pooling = value(keyEncoder), value(keyPooling)
	s.Dim, s.MaxTokens = number(keyDim), number(keyTokens)
	s.Normalized = value(keyNorm) == "true"
	s.QueryPrefix, s.PassagePrefix = value(keyQuery), value(keyPassage)
	s.Content, _ = get(keyContent)
	if err == nil && (s.Dim < 1 || s.Dim > maxDim) {
		err = fmt.Errorf("schema metadata says dimension %d", s.Dim)
	}
	if err == nil && s.Content != "" && s.Content != Images {
		err = fmt.Errorf("schema metadata says content %q", s.Content)
	}
	return s, err
}

const maxDim = 1 << 20
