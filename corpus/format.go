package corpus

import (
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// What a format gives.
const (
	Questions = "questions"
	Passages  = "passages"
)

// Format is one way in which others store questions or passages: an adapter.
// Adding one takes a file with a Format value, a line in formats, and a folder
// in testdata/formats; the conformance test does the rest.
//
// Both readers go through all files of the input in order and yield rows in the
// order of the files. The error of the sequence is one of a file and ends it.
type Format struct {
	Name   string
	Doc    string // one line: whose files, in which form
	Fields string // the columns or fields that are read; after a semicolon those that may be absent
	From   string // where people get the files; nothing is ever fetched by itself
	Split  string // split of rows that name none
	// DataSource is the data_source of rows that name none; "" is the format's name.
	DataSource string
	// Files are the patterns of the files that are read when a folder is given,
	// by what they give.
	Files map[string][]string
	// ImageDirs are folders beside the input file in which images lie that the
	// rows name by a relative path.
	ImageDirs []string
	// Unanswered is set when the questions have no answers but judgements.
	Unanswered bool

	Questions func(in Input) iter.Seq2[Row[Sample], error] // nil: gives no questions
	Passages  func(in Input) iter.Seq2[Row[Document], error]
	// Side writes further files that belong to the questions. It calls reject for
	// every line it leaves out.
	Side map[string]func(in Input, w io.Writer, reject func(path string, row int64, reason error)) error
}

// formats is the registry, in the order in which people see it.
var formats = []Format{
	verlFormat, mmSearchFormat, infoSeekFormat, simpleVQAFormat, liveVQAFormat, liveVQAOpenFormat, mmSearchPlusFormat, vdrBenchFormat, browseCompVLFormat,
	visionDeepResearchFormat, searchR1Format, cranfieldFormat, jsonlFormat, passagesFormat, imageCorpusFormat,
}

// Formats gives all formats.
func Formats() []Format { return append([]Format(nil), formats...) }

// FormatNamed finds a format.
func FormatNamed(name string) (Format, error) {
	var names []string
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	e := fail.New(fail.Usage, "prep", "", "unknown format %q", name)
	e.Hint = "formats are " + strings.Join(append(names, mapFormat), ", ")
	return Format{}, e
}

// ListFormats writes the table of formats for people, those of a recipe's
// mappings included.
func ListFormats(w io.Writer, own map[string]recipe.Mapping) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FORMAT\tGIVES\tREADS")
	for _, f := range formats {
		f.list(t)
	}
	if err := listOwn(t, own); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nNothing is downloaded: fetch the files from where the list says and name them with --in.")
	return t.Flush()
}

func (f Format) list(w io.Writer) {
	fmt.Fprintf(w, "%s\t%s\t%s\n", f.Name, strings.Join(f.gives(), ", "), f.Doc)
	fmt.Fprintf(w, "\tfields\t%s\n", f.Fields)
	fmt.Fprintf(w, "\tfrom\t%s\n", f.From)
}

func (f Format) gives() []string {
	var g []string
	if f.Questions != nil {
		g = append(g, Questions)
	}
	if f.Passages != nil {
		g = append(g, Passages)
	}
	return g
}

// Input is what an adapter reads.
type Input struct {
	Files []string
}

// Row is one row of a source before anything expensive was done for it.
type Row[T any] struct {
	Path string // the file
	N    int64  // 1-based row or line in the file
	ID   string
	Err  error // why the row is unusable; Load is nil then
	// Load reads the rest of the row. It may be called until the sequence goes on;
	// what it gives stays valid.
	// An error of package fail means that the file cannot be read, any other that
	// this row is unusable.
	Load func() (T, error)
}

// Sample is a question as a source has it.
type Sample struct {
	Text       string
	Truth      []string // accepted answers, the official one first
	Candidates []string // further spellings
	Images     []Picture
	Shown      int // images that the text shows, as far as it says so
	DataSource string
	Ability    string
	AgentName  string
	Split      string
	Category   string
	Meta       record.Value // a struct or null
}

// Document is a passage as a source has it.
type Document struct {
	Contents string
	Image    *Picture
	checked  bool // Contents is known to be UTF-8
}

// Picture is an encoded image or the name of its file.
type Picture struct {
	Data []byte
	Path string
	Exts []string // extensions to try when Path has none
}

// weight is about how many bytes an image takes; those of a file are not known.
func (p Picture) weight() int {
	if p.Path != "" {
		return 128 << 10
	}
	return len(p.Data)
}

func (s Sample) weight() (n int) {
	for _, p := range s.Images {
		n += p.weight()
	}
	return n
}

func (d Document) weight() int {
	if d.Image == nil {
		return 0
	}
	return d.Image.weight()
}

// bad makes a row that is unusable.
func bad[T any](path string, n int64, id string, err error) Row[T] {
	return Row[T]{Path: path, N: n, ID: id, Err: err}
}

// checkID says why an id cannot name a sample in files, logs and other rows.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("the row has no id")
	case len(id) > 512:
		return fmt.Errorf("the id has %d bytes", len(id))
	case !utf8.ValidString(id), strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("the id %q holds control characters or is not UTF-8", id)
	}
	return nil
}

// numbered is the id of a row without one: the file's name and the row, from 0.
func numbered(path string, n int64) string {
	stem, _, _ := strings.Cut(filepath.Base(path), ".")
	return stem + "_" + strconv.FormatInt(n-1, 10)
}
