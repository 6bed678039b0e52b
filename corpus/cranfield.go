package corpus

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
)

// cranfieldFormat reads the Cranfield collection in SMART's form. What is odd in
// its files: queries are judged by their order of appearance and not by their .I
// number; a record may have a field twice; documents 471 and 995 are empty (and
// are rejected); both record files end in a mark without a record; lines end in
// CRLF in one of them; judgements have stray spaces. Grade 1 is best.
var cranfieldFormat = Format{
	Name:       "cranfield",
	Doc:        "the Cranfield collection: cran.all.1400 gives passages; with --what questions cran.qry and cranqrel give queries and qrels.tsv",
	Fields:     ".I .T .A .B .W records; for questions cran.qry and cranqrel",
	From:       "ir.dcs.gla.ac.uk/resources/test_collections/cran: cran.tar.gz",
	Split:      "test",
	Files:      map[string][]string{Passages: {"cran.all*"}, Questions: {"cran.qry*", "cranqrel*"}},
	Unanswered: true,
	Passages: func(in Input) iter.Seq2[Row[Document], error] {
		return func(yield func(Row[Document], error) bool) {
			for rec, err := range smartRecords(in.Files, isDocuments, "documents (cran.all.1400)") {
				if err != nil {
					yield(Row[Document]{}, err)
					return
				}
				row := Row[Document]{Path: rec.path, N: rec.line, ID: rec.number, Load: func() (Document, error) {
					body := strings.Join(rec.fields['W'], "\n")
					title := strings.Join(rec.fields['T'], " ")
					return document("", title, body, nil)
				}}
				if !yield(row, nil) {
					return
				}
			}
		}
	},
	Questions: func(in Input) iter.Seq2[Row[Sample], error] {
		return func(yield func(Row[Sample], error) bool) {
			n := 0
			for rec, err := range smartRecords(in.Files, isQueries, "queries (cran.qry)") {
				if err != nil {
					yield(Row[Sample]{}, err)
					return
				}
				n++
				row := Row[Sample]{Path: rec.path, N: rec.line, ID: cranfieldQuery(n), Load: func() (Sample, error) {
					s := Sample{DataSource: "cranfield", Text: strings.Join(strings.Fields(strings.Join(rec.fields['W'], " ")), " ")}
					s.Meta = s.Meta.With("number", record.TextOf(rec.number))
					return s, nil
				}}
				if !yield(row, nil) {
					return
				}
			}
		}
	},
	Side: map[string]func(Input, io.Writer, func(string, int64, error)) error{"qrels.tsv": cranfieldJudgements},
}

func cranfieldQuery(n int) string { return "cranfield_" + strconv.Itoa(n) }

func isJudgements(name string) bool { return strings.Contains(name, "qrel") }
func isQueries(name string) bool {
	return strings.Contains(name, "qry") || strings.Contains(name, "quer")
}
func isDocuments(name string) bool { return !isQueries(name) && !isJudgements(name) }

func filesThat(is func(string) bool, files []string, what string) ([]string, error) {
	var out []string
	for _, f := range files {
		if is(strings.ToLower(filepath.Base(f))) {
			out = append(out, f)
		}
	}
	if out == nil {
		e := fail.New(fail.Usage, "read Cranfield", strings.Join(files, ", "), "no file of %s among them", what)
		e.Hint = "files are told apart by name; --what questions wants cran.qry and cranqrel, otherwise cran.all.1400"
		return nil, e
	}
	return out, nil
}

// smartRecord is one record of SMART's form: lines of text under marks .T .A .B .W.
type smartRecord struct {
	path   string
	line   int64 // of its .I mark
	number string
	fields map[byte][]string
}

func smartRecords(files []string, is func(string) bool, what string) iter.Seq2[smartRecord, error] {
	return func(yield func(smartRecord, error) bool) {
		files, err := filesThat(is, files, what)
		if err != nil {
			yield(smartRecord{}, err)
			return
		}
		for _, path := range files {
			var rec *smartRecord
			field := byte(0)
			for line, err := range record.Lines(path) {
				if err != nil {
					yield(smartRecord{}, err)
					return
				}
				text := strings.TrimRight(string(line.Data), " \t")
				if line.Err != nil || rec == nil && !isMark(text, 'I') {
					e := fail.New(fail.BadInput, "read Cranfield", path, "a record must begin with .I")
					e.Row, e.Hint = line.N, "is this the collection's file?"
					yield(smartRecord{}, e)
					return
				}
				switch {
				case isMark(text, 'I'):
					if rec != nil && !yield(*rec, nil) {
						return
					}
					rec = &smartRecord{path: path, line: line.N, number: strings.TrimSpace(text[2:]), fields: map[byte][]string{}}
					field = 0
				case len(text) == 2 && text[0] == '.' && strings.IndexByte("TABW", text[1]) >= 0:
					field = text[1]
					if _, again := rec.fields[field]; !again {
						rec.fields[field] = []string{}
					}
				default:
					rec.fields[field] = append(rec.fields[field], strings.TrimSpace(text))
				}
			}
			// The mark at the end of the files has no fields.
			if rec != nil && len(rec.fields) > 0 && !yield(*rec, nil) {
				return
			}
		}
	}
}

func isMark(text string, mark byte) bool {
	return len(text) >= 2 && text[0] == '.' && text[1] == mark && (len(text) == 2 || text[2] == ' ')
}

// cranfieldJudgements writes BEIR's form, query-id, corpus-id and score, with
// score = 5 - grade, in order of query and document.
func cranfieldJudgements(in Input, w io.Writer, reject func(string, int64, error)) error {
	queries := 0
	for _, err := range smartRecords(in.Files, isQueries, "queries (cran.qry)") {
		if err != nil {
			return err
		}
		queries++
	}
	files, err := filesThat(isJudgements, in.Files, "judgements (cranqrel)")
	if err != nil {
		return err
	}
	scores := map[[2]int]int{}
	for _, path := range files {
		for line, err := range record.Lines(path) {
			if err != nil {
				return err
			}
			q, d, grade, err := judgement(string(line.Data), queries)
			if _, twice := scores[[2]int{q, d}]; err == nil && twice {
				err = errors.New("the pair is judged twice; the first judgement counts")
			}
			if err != nil {
				reject(path, line.N, err)
				continue
			}
			scores[[2]int{q, d}] = 5 - grade
		}
	}
	if _, err := io.WriteString(w, "query-id\tcorpus-id\tscore\n"); err != nil {
		return err
	}
	pairs := slices.SortedFunc(maps.Keys(scores), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	for _, k := range pairs {
		if _, err := fmt.Fprintf(w, "%s\t%d\t%d\n", cranfieldQuery(k[0]), k[1], scores[k]); err != nil {
			return err
		}
	}
	return nil
}

func judgement(line string, queries int) (query, doc, grade int, err error) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return 0, 0, 0, fmt.Errorf("%d fields instead of query, document, grade", len(f))
	}
	var n [3]int
	for i := range f {
		if n[i], err = strconv.Atoi(f[i]); err != nil {
			return 0, 0, 0, fmt.Errorf("%q is no number", f[i])
		}
	}
	if n[0] < 1 || n[0] > queries || n[1] < 1 || n[2] < 1 || n[2] > 4 {
		return 0, 0, 0, fmt.Errorf("query %d of %d, document %d, grade %d: out of range", n[0], queries, n[1], n[2])
	}
	return n[0], n[1], n[2], nil
}
