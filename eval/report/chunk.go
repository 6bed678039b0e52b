package report

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"html/template"

	"searchloop/corpus"
)

// chunkSize is how many trajectories are unpacked together when one of them is
// opened: the page reads a chunk in a few milliseconds.
const chunkSize = 40

// listed is what the list knows of a sample. Names are short, since there are
// thousands.
type listed struct {
	ID       string  `json:"i"`
	Series   int     `json:"e"`
	Category string  `json:"c"`
	Text     string  `json:"q"`
	Answer   string  `json:"a"`
	Truth    string  `json:"t"`
	Score    float64 `json:"s"`
	Flags    int     `json:"f"`
	Calls    int     `json:"n"`
	Turns    int     `json:"u"`
	Why      string  `json:"w"` // the diagnosis
}

// opened is everything about a sample.
type opened struct {
	Text       string      `json:"text"`
	Truth      []string    `json:"truth"`
	Answer     string      `json:"answer"`
	Status     string      `json:"status"`
	Why        string      `json:"why"`
	Verdict    string      `json:"verdict"`
	By         string      `json:"by"`
	Judge      string      `json:"judge"`
	Reply      string      `json:"reply"`
	Opinions   [][2]string `json:"opinions,omitempty"`
	Exact      bool        `json:"exact"`
	SubEM      bool        `json:"sub_em"`
	Scored     bool        `json:"scored"`
	Reward     float64     `json:"reward"`
	Components []part      `json:"parts"`
	Turns      []turn      `json:"turns"`
}

type part struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Weight float64 `json:"weight"`
}

type turn struct {
	Role    string   `json:"role"`
	Text    string   `json:"text"`
	Images  []string `json:"images,omitempty"`
	Call    string   `json:"call,omitempty"`
	Args    string   `json:"args,omitempty"`
	Error   string   `json:"error,omitempty"`
	Tokens  int32    `json:"tokens,omitempty"`
	Cut     bool     `json:"cut,omitempty"`   // by the limit of tokens
	Truth   bool     `json:"truth,omitempty"` // an observation that holds the truth
	Sources []source `json:"sources,omitempty"`
}

type source struct {
	Provider string `json:"provider"`
	URL      string `json:"url"`
	Time     string `json:"time"`
}

// pack is JSON, gzipped, in base64: no text in it can be read as markup or script.
func pack(v any) (template.HTML, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed+1)
	if err != nil {
		return "", err
	}
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return template.HTML(base64.StdEncoding.EncodeToString(b.Bytes())), nil
}

// data is what the page's script reads: base64 and data URLs, which the template
// need not and must not escape.
type data struct {
	List   template.HTML            // packed: all listed
	Chunks []template.HTML          // packed: opened ones, chunkSize each, in the order of the list
	Images map[string]template.HTML // data URLs by SHA-256; "" when no store has it
}

// packSamples lays the samples of all series out.
func packSamples(epochs []Epoch, free map[string]bool, store *corpus.ImageStore) (*data, error) {
	d := &data{Images: map[string]template.HTML{}}
	list := []listed{}
	var chunk []opened
	flush := func() error {
		text, err := pack(chunk)
		d.Chunks, chunk = append(d.Chunks, text), chunk[:0]
		return err
	}
	for n := range epochs {
		for i := range epochs[n].samples {
			p := &epochs[n].samples[i]
			isFree := free[p.row.Category] || p.row.Category == "search_free"
			seen, truth := truthIn(p), ""
			if len(p.row.Answers) > 0 {
				truth = p.row.Answers[0]
			}
			list = append(list, listed{ID: p.row.ID, Series: n, Category: p.row.Category, Text: clip(p.row.Text, 240), Answer: clip(p.row.Answer, 120), Truth: clip(truth, 120),
				Score: p.sample.Score, Flags: flagsOf(p, isFree, seen), Calls: len(p.sample.Calls), Turns: int(p.sample.Turns), Why: diagnose(p, isFree, seen)})
			chunk = append(chunk, open(p, seen))
			for _, t := range p.row.Turns {
				for _, sha := range t.Images {
					if _, ok := d.Images[sha]; !ok {
						d.Images[sha] = template.HTML(dataURL(store, sha))
					}
				}
			}
			if len(chunk) == chunkSize {
				if err := flush(); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(chunk) > 0 {
		if err := flush(); err != nil {
			return nil, err
		}
	}
	var err error
	d.List, err = pack(list)
	return d, err
}

func open(p *played, seen int) opened {
	o := opened{Text: p.row.Text, Truth: p.row.Answers, Answer: p.row.Answer, Status: p.row.Status, Why: p.row.Why, Verdict: p.judged.Verdict, By: p.judged.By,
		Judge: p.judged.JudgeModel, Reply: p.judged.Reply, Exact: p.sample.ExactMatch, SubEM: p.sample.SubEM, Scored: p.judged.Scored, Reward: p.judged.Reward}
	for _, x := range p.judged.Opinions {
		o.Opinions = append(o.Opinions, [2]string{x.Judge, x.Verdict})
	}
	for _, c := range p.judged.Components {
		o.Components = append(o.Components, part{c.Name, c.Value, c.Weight})
	}
	n := 0
	for _, t := range p.row.Turns {
		x := turn{Role: t.Role, Text: t.Text, Images: t.Images, Call: t.Call, Args: t.Args, Error: t.Error, Tokens: t.Tokens, Cut: t.Finish == "length"}
		if t.Observation() {
			n++
			x.Truth = n == seen
		}
		for _, s := range t.Sources {
			x.Sources = append(x.Sources, source{s.Provider, s.URL, s.Time})
		}
		o.Turns = append(o.Turns, x)
	}
	return o
}
