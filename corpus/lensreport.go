package corpus

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/jsonscan"
	"searchloop/internal/table"
)

// LensReport says what became of a lens cache.
type LensReport struct {
	Entries     int64       `json:"entries"`
	Superseded  int64       `json:"superseded"` // entries that a later one of the same data_id replaced
	Hits        int64       `json:"hits"`
	HitsNoPath  int64       `json:"hits_without_path"` // the cache names no image for them
	HitsOnWeb   int64       `json:"hits_on_the_web"`   // ... a web address, which is kept and not fetched
	ImagesFound int64       `json:"images_found"`
	FoundBy     FoundBy     `json:"found_by"`
	Missing     []LensMiss  `json:"images_missing"`
	Unpacked    unpackStats `json:"unpacked"`

	Questions               int64    `json:"questions"` // with an image
	QuestionsWithoutEntry   []string `json:"questions_without_entry"`
	EntriesWithoutQuestion  int64    `json:"entries_without_question"`
	entriesThatHaveQuestion int64
	lately                  struct { // hits in a row that led to images in one way
		how string
		n   int64
	}
}

// LensBrief is a report for people and the summary: of its lists, which can have as
// many items as the cache, the first, and how many there are.
type LensBrief struct {
	LensReport
	MissingInAll      int `json:"images_missing_in_all"`
	WithoutEntryInAll int `json:"questions_without_entry_in_all"`
}

// briefItems are the items of a list in a LensBrief.
const briefItems = 20

func (r LensReport) brief() LensBrief {
	b := LensBrief{LensReport: r, MissingInAll: len(r.Missing), WithoutEntryInAll: len(r.QuestionsWithoutEntry)}
	b.Missing = r.Missing[:min(briefItems, len(r.Missing))]
	b.QuestionsWithoutEntry = r.QuestionsWithoutEntry[:min(briefItems, len(r.QuestionsWithoutEntry))]
	return b
}

// FoundBy counts how cached paths led to images.
type FoundBy map[string]int64

// LensMiss is an image that a cache names and that does not exist or is broken.
type LensMiss struct {
	DataID string `json:"data_id"`
	Hit    int    `json:"hit"` // from 0
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// count adds a hit and what became of its image.
func (r *LensReport) count(id string, i int, h *LensHit, f *found) {
	r.Hits++
	switch {
	case f != nil && f.sha != "":
		if f.how != r.lately.how {
			r.settle()
			r.lately.how = f.how
		}
		r.lately.n++
	case f != nil:
		r.Missing = append(r.Missing, LensMiss{id, i, h.Path, f.reason})
	case h.Path == "":
		r.HitsNoPath++
	default:
		r.HitsOnWeb++
	}
}

// text is the report as indented JSON. The missing images, of which there may be as
// many as hits, are written one by one: indenting them all afterwards takes ten
// times as long.
func (r LensReport) text() ([]byte, error) {
	missing := r.Missing
	r.Missing = []LensMiss{}
	rest, err := json.MarshalIndent(r, "", "  ")
	if err != nil || len(missing) == 0 {
		return append(rest, '\n'), err
	}
	const field = "\n  \"images_missing\": ["
	at := bytes.Index(rest, []byte(field)) + len(field)
	out := append(make([]byte, 0, len(rest)+192*len(missing)), rest[:at]...)
	for i, m := range missing {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendJSONText(append(out, "\n    {\n      \"data_id\": "...), m.DataID)
		out = strconv.AppendInt(append(out, ",\n      \"hit\": "...), int64(m.Hit), 10)
		out = appendJSONText(append(out, ",\n      \"path\": "...), m.Path)
		out = appendJSONText(append(out, ",\n      \"reason\": "...), m.Reason)
		out = append(out, "\n    }"...)
	}
	return append(append(append(out, "\n  "...), rest[at:]...), '\n'), nil
}

// appendJSONText appends a text as json.Marshal writes it, which escapes for HTML.
func appendJSONText(dst []byte, s string) []byte {
	if strings.ContainsAny(s, "<>&") {
		text, _ := json.Marshal(s) // a text cannot fail
		return append(dst, text...)
	}
	return jsonscan.AppendText(dst, s)
}

// settle enters what count has not yet.
func (r *LensReport) settle() {
	if r.lately.n > 0 {
		r.FoundBy[r.lately.how] += r.lately.n
		r.ImagesFound += r.lately.n
		r.lately.n = 0
	}
}

// compare says which questions with an image the cache does not know.
func (l *lens) compare() error {
	if l.opt.Questions == "" {
		return nil
	}
	type question struct {
		ID       string   `parquet:"id"`
		ImageIDs []string `parquet:"image_ids,list"`
	}
	for q, err := range table.ReadDataset[question](l.opt.Questions) {
		if err != nil {
			return err
		}
		if len(q.ImageIDs) == 0 {
			continue
		}
		l.report.Questions++
		if _, ok := l.entryOf[q.ID]; ok {
			l.report.entriesThatHaveQuestion++
		} else {
			l.report.QuestionsWithoutEntry = append(l.report.QuestionsWithoutEntry, q.ID)
		}
	}
	slices.Sort(l.report.QuestionsWithoutEntry)
	l.report.EntriesWithoutQuestion = l.report.Entries - l.report.entriesThatHaveQuestion
	return nil
}

// again holds the report of a finished dataset against the bound.
func again(r *job.Run, o LensOptions) error {
	path := filepath.Join(o.Out, LensReportOf)
	text, err := os.ReadFile(path)
	l := lens{r: r, opt: o}
	if err == nil {
		err = json.Unmarshal(text, &l.report)
	}
	if err != nil {
		return fail.Wrap(fail.BadInput, "read report", path, err)
	}
	return l.bound()
}

// bound compares the missing images with what may be missing.
func (l *lens) bound() error {
	named := l.report.ImagesFound + int64(len(l.report.Missing))
	if len(l.report.Missing) == 0 {
		return nil
	}
	miss := l.report.Missing[0]
	if float64(len(l.report.Missing)) <= l.opt.MaxMissing*float64(named) {
		l.r.Log.Warn("images are missing; their hits have none", "missing", len(l.report.Missing), "of", named,
			"first", miss.DataID+": "+miss.Path, "because", miss.Reason, "see", filepath.Join(l.opt.Out, LensReportOf))
		return nil
	}
	e := fail.New(fail.Bound, "lens", l.opt.Out, "%d of %d images are missing; the first: %s (%s)", len(l.report.Missing), named, miss.Path, miss.Reason)
	e.Sample = miss.DataID
	e.Hint = "the dataset is complete without them; --max-missing moves the bound"
	if l.example != "" {
		e.Hint += "; names in the archive look like " + l.example
	}
	return e
}
