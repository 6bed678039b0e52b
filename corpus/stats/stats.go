// Package stats describes questions and passages datasets: counts, splits,
// lengths, kinds of answers, sizes of images, and what training and test
// questions have in common. It reads finished datasets and image stores and
// writes one HTML page and the same figures as JSON; it changes no dataset.
package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"searchloop/corpus"
	"searchloop/corpus/near"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/table"
)

// Options of Write.
type Options struct {
	In     []string // questions and passages datasets; all questions are compared with each other
	Images []string // image stores, beside images/ in the datasets
	Out    string   // the page; figures go beside it as .json
}

// Count is how many rows have a value.
type Count struct {
	Name string
	N    int64
}

// Spread describes numbers: least, greatest, quantiles and a histogram.
type Spread struct {
	N                       int64
	Least, Greatest         int64
	Median, Ninety, NineNin int64
	Mean                    float64
	Bins                    []Count
}

// Figures are what the page shows.
type Figures struct {
	Datasets  []Dataset
	Questions *Questions `json:",omitempty"`
	Passages  *Passages  `json:",omitempty"`
	Images    *Images    `json:",omitempty"`
	Leaks     *Leaks     `json:",omitempty"`
}

// Dataset is one input.
type Dataset struct {
	Path, Schema, Digest string
	Counts               manifest.Counts
}

// Questions are figures of questions.
type Questions struct {
	N                                  int64
	Splits, Categories, Sources, Kinds []Count
	ByImages                           []Count // questions by how many images they have
	Words, AnswerWords, Answers        Spread
	SameTexts                          int64 // questions whose text, plain, an earlier one has
}

// Passages are figures of passages.
type Passages struct {
	N, Titled, WithImage, Same int64
	Words                      Spread
}

// Images are figures of the distinct images of all rows.
type Images struct {
	N, Missing, Broken   int64
	Formats              []Count
	Width, Height, Bytes Spread
	Pixels               Spread // in thousands
}

// Write makes the page and prints the figures.
func Write(ctx context.Context, r *job.Run, o Options) error {
	if len(o.In) == 0 || o.Out == "" {
		return fail.New(fail.Usage, "prep --stats", "", "--in and --out are needed")
	}
	if strings.HasSuffix(o.Out, string(filepath.Separator)) || filepath.Ext(o.Out) != ".html" {
		o.Out = filepath.Join(o.Out, "stats.html")
	}
	f, err := Collect(ctx, r, o)
	if err != nil {
		return err
	}
	html, err := page(f)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return fail.Wrap(fail.Bug, "prep --stats", o.Out, err)
	}
	if err := atomicfile.WriteFile(o.Out, html); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(strings.TrimSuffix(o.Out, ".html")+".json", append(text, '\n')); err != nil {
		return err
	}
	r.Result(f)
	if !r.JSON {
		print(r.Out, f, o.Out)
	}
	return nil
}

// collector gathers the figures in one pass.
type collector struct {
	q                                         Questions
	p                                         Passages
	splits, categories, sources, kinds, count tally
	words, answerWords, answers, passageWords numbers
	texts, passages                           *contents
	images                                    map[string]bool
	asked                                     []asked
}

// Collect reads the datasets.
func Collect(ctx context.Context, r *job.Run, o Options) (*Figures, error) {
	c := &collector{splits: tally{}, categories: tally{}, sources: tally{}, kinds: tally{}, count: tally{}, texts: newContents(), passages: newContents(), images: map[string]bool{}}
	f := &Figures{}
	stores := slices.Clone(o.Images)
	for _, dir := range o.In {
		m, err := manifest.Open(dir)
		if err != nil {
			return nil, err
		}
		f.Datasets = append(f.Datasets, Dataset{dir, m.Schema, m.Digest(), m.Counts})
		stores = append(stores, filepath.Join(dir, "images"))
		switch m.Schema {
		case corpus.Questions:
			err = each(ctx, r, dir, c.question)
		case corpus.Passages:
			err = each(ctx, r, dir, c.passage)
		default:
			err = fail.New(fail.BadInput, "prep --stats", dir, "a dataset of %s, neither questions nor passages", m.Schema)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.q.N > 0 {
		c.q.Splits, c.q.Categories, c.q.Sources, c.q.Kinds, c.q.ByImages = c.splits.sorted(), c.categories.sorted(), c.sources.sorted(), c.kinds.sorted(), c.count.sorted()
		c.q.Words, c.q.AnswerWords, c.q.Answers, c.q.SameTexts = c.words.spread(), c.answerWords.spread(), c.answers.spread(), c.texts.same
		l := leaks(c.asked)
		f.Questions, f.Leaks = &c.q, &l
	}
	if c.p.N > 0 {
		c.p.Words, c.p.Same = c.passageWords.spread(), c.passages.same
		f.Passages = &c.p
	}
	if len(c.images) > 0 {
		var err error
		if f.Images, err = c.look(ctx, r, stores); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func each[T any](ctx context.Context, r *job.Run, dir string, row func(T)) error {
	n, err := int64(-1), error(nil)
	progress := r.Progress(filepath.Base(dir), n)
	defer progress.Done()
	var t T
	for t, err = range table.ReadDataset[T](dir) {
		if err != nil {
			return err
		}
		if err := r.Interrupted(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, "prep --stats", dir, err)
		}
		row(t)
		progress.Add(1, 0)
	}
	return err
}

func (c *collector) question(q corpus.Question) {
	c.q.N++
	c.splits.add(q.Split)
	c.categories.add(q.Category)
	c.sources.add(q.DataSource)
	c.count.add(fmt.Sprint(len(q.ImageIDs)))
	c.words.add(len(strings.Fields(q.Text)))
	c.answers.add(len(q.Answers))
	a := asked{id: q.ID, text: cut(q.Text), norm: near.Plain(q.Text), train: strings.HasPrefix(q.Split, "train")}
	c.texts.add(a.norm)
	if len(q.Answers) > 0 {
		a.answer = q.Answers[0]
		c.kinds.add(answerKind(a.answer))
		c.answerWords.add(len(strings.Fields(a.answer)))
	} else {
		c.kinds.add("none")
	}
	if len(q.ImageIDs) > 0 {
		a.image = strings.Join(q.ImageIDs, " ")
	}
	for _, id := range q.ImageIDs {
		c.images[id] = true
	}
	c.asked = append(c.asked, a)
}

func (c *collector) passage(p corpus.Passage) {
	c.p.N++
	first, _, _ := strings.Cut(p.Contents, "\n")
	if strings.HasPrefix(first, `"`) && strings.HasSuffix(first, `"`) {
		c.p.Titled++
	}
	c.passageWords.add(len(strings.Fields(p.Contents)))
	c.passages.add(p.Contents)
	if p.ImageID != "" {
		c.p.WithImage++
		c.images[p.ImageID] = true
	}
}

// cut bounds a text that is shown.
func cut(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	end := most
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

var (
	number = regexp.MustCompile(`^[-+~≈$€£]?\s?[\d][\d.,\s]*\s?(%|[\p{L}²³/]{1,12})?$`)
	date   = regexp.MustCompile(`(?i)^(\d{4}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}-\d{2}(-\d{2})?|.*(january|february|march|april|may|june|july|august|september|october|november|december)\b.*\d.*)$`)
)

// answerKind sorts an answer by what it looks like.
func answerKind(a string) string {
	a = strings.TrimSpace(a)
	switch lower := strings.ToLower(strings.TrimRight(a, ".")); {
	case lower == "yes" || lower == "no" || lower == "true" || lower == "false":
		return "yes or no"
	case len(a) == 1 && a[0] >= 'A' && a[0] <= 'Z':
		return "letter"
	case date.MatchString(a):
		return "date or year"
	case number.MatchString(a):
		return "number"
	}
	switch n := len(strings.Fields(a)); {
	case n <= 3:
		return "1 to 3 words"
	case n <= 10:
		return "4 to 10 words"
	}
	return "longer text"
}

// look reads the headers of the images.
func (c *collector) look(ctx context.Context, r *job.Run, dirs []string) (*Images, error) {
	out := &Images{}
	var have []string
	for _, d := range dirs {
		if _, err := corpus.OpenStore(d, d); err == nil {
			have = append(have, d)
		}
	}
	if len(have) == 0 {
		out.Missing = int64(len(c.images))
		return out, nil
	}
	store, err := corpus.OpenStore(have...)
	if err != nil {
		return nil, err
	}
	progress := r.Progress("images", int64(len(c.images)))
	defer progress.Done()
	formats := tally{}
	var width, height, bytes, pixels numbers
	ids := make([]string, 0, len(c.images))
	for id := range c.images {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if err := r.Interrupted(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, fail.Wrap(fail.Interrupted, "prep --stats", "", err)
		}
		progress.Add(1, 0)
		if !store.Has(id) {
			out.Missing++
			continue
		}
		data, err := store.Get(id)
		if err != nil {
			out.Broken++
			continue
		}
		format, w, h, err := picture.Size(data)
		if err != nil {
			out.Broken++
			continue
		}
		out.N++
		formats.add(format)
		width.add(w)
		height.add(h)
		bytes.add(len(data))
		pixels.add(w * h / 1000)
	}
	out.Formats, out.Width, out.Height, out.Bytes, out.Pixels = formats.sorted(), width.spread(), height.spread(), bytes.spread(), pixels.spread()
	return out, nil
}

// tally counts values.
type tally map[string]int64

func (t tally) add(s string) {
	if s == "" {
		s = "(none)"
	}
	t[s]++
}

// sorted gives the commonest first, at most 40, the rest together.
func (t tally) sorted() []Count {
	var out []Count
	for name, n := range t {
		out = append(out, Count{name, n})
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Name, b.Name)) })
	if const40 := 40; len(out) > const40 {
		rest := Count{Name: fmt.Sprintf("(%d more)", len(out)-const40)}
		for _, c := range out[const40:] {
			rest.N += c.N
		}
		out = append(out[:const40], rest)
	}
	return out
}

// numbers collects how often each number occurs: few distinct ones, many rows.
type numbers map[int64]int64

func (n *numbers) add(x int) {
	if *n == nil {
		*n = numbers{}
	}
	(*n)[int64(x)]++
}

func (n numbers) spread() Spread {
	var s Spread
	keys := make([]int64, 0, len(n))
	sum := 0.0
	for x, k := range n {
		keys = append(keys, x)
		s.N += k
		sum += float64(x) * float64(k)
	}
	if s.N == 0 {
		return s
	}
	slices.Sort(keys)
	s.Least, s.Greatest, s.Mean = keys[0], keys[len(keys)-1], sum/float64(s.N)
	at := func(p float64) int64 {
		left := int64(p * float64(s.N-1))
		for _, x := range keys {
			if left -= n[x]; left < 0 {
				return x
			}
		}
		return s.Greatest
	}
	s.Median, s.Ninety, s.NineNin = at(0.5), at(0.9), at(0.99)
	// Bins of equal width up to the 99th percentile, and one for the rest.
	const bins = 20
	width := max((s.NineNin-s.Least)/bins, 0) + 1
	for b := int64(0); s.Least+b*width <= s.NineNin; b++ {
		lo := s.Least + b*width
		c := Count{Name: fmt.Sprint(lo)}
		for _, x := range keys {
			if x >= lo && x < lo+width && x <= s.NineNin {
				c.N += n[x]
			}
		}
		s.Bins = append(s.Bins, c)
	}
	more := Count{Name: ">" + fmt.Sprint(s.NineNin)}
	for _, x := range keys {
		if x > s.NineNin {
			more.N += n[x]
		}
	}
	if more.N > 0 {
		s.Bins = append(s.Bins, more)
	}
	return s
}

func print(w io.Writer, f *Figures, path string) {
	counts := func(name string, list []Count) {
		fmt.Fprintf(w, "%-14s", name)
		for i, c := range list[:min(len(list), 8)] {
			if i > 0 {
				fmt.Fprint(w, ", ")
			}
			fmt.Fprintf(w, "%s %d", c.Name, c.N)
		}
		fmt.Fprintln(w)
	}
	spread := func(name string, s Spread) {
		fmt.Fprintf(w, "%-14s%d to %d, median %d, 90 %% %d, mean %.1f\n", name, s.Least, s.Greatest, s.Median, s.Ninety, s.Mean)
	}
	if q := f.Questions; q != nil {
		fmt.Fprintf(w, "questions     %d, %d with a text that an earlier one has\n", q.N, q.SameTexts)
		counts("splits", q.Splits)
		counts("categories", q.Categories)
		counts("sources", q.Sources)
		counts("answer kinds", q.Kinds)
		spread("words", q.Words)
		spread("answers", q.Answers)
		if l := f.Leaks; l.TrainQuestions > 0 && l.TestQuestions > 0 {
			fmt.Fprintf(w, "leak check    %d train, %d test: %d test questions leaked; %d share an image, %d the text, %d nearly\n",
				l.TrainQuestions, l.TestQuestions, l.Leaked, l.SameImage, l.SameText, l.NearText)
		}
	}
	if p := f.Passages; p != nil {
		fmt.Fprintf(w, "passages      %d, %d with a title, %d with an image, %d repeated\n", p.N, p.Titled, p.WithImage, p.Same)
		spread("words", p.Words)
	}
	if i := f.Images; i != nil {
		fmt.Fprintf(w, "images        %d, %d missing, %d broken\n", i.N, i.Missing, i.Broken)
		counts("formats", i.Formats)
		spread("width", i.Width)
		spread("height", i.Height)
		spread("bytes", i.Bytes)
	}
	fmt.Fprintln(w, path)
}
