package vqa

import (
	"slices"

	"searchloop/corpus"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/synth/ask"
)

// Row is a question that was made, with how it was made. Its columns are those of
// a question and one more, so that every reader of questions reads it.
type Row struct {
	corpus.Question
	Synth *Origin `parquet:"synth,optional"`
}

// Origin is what a question was made from, and how. See docs/synth.md.
type Origin struct {
	Kind      string     `parquet:"kind,dict" json:"kind"`
	Type      string     `parquet:"type,dict" json:"type"`
	Concept   string     `parquet:"concept" json:"concept"`
	ConceptID string     `parquet:"concept_id" json:"concept_id"`
	PageTitle string     `parquet:"page_title" json:"page_title"`
	PageLink  string     `parquet:"page_link" json:"page_link"`
	PageHash  string     `parquet:"page_sha256" json:"page_sha256"` // of its text
	Evidence  string     `parquet:"evidence" json:"evidence"`       // where the page says so
	ImageLink string     `parquet:"image_link" json:"image_link"`
	Source    string     `parquet:"source,dict" json:"source"`
	Licence   string     `parquet:"licence,dict" json:"licence"`
	Made      []ask.Made `parquet:"made,list" json:"made"`

	Looks []corpus.Look `parquet:"looks,list,optional" json:"looks,omitempty"` // of kinds with crops, in the order in which they were made
	Hops  []Hop         `parquet:"hops,list,optional" json:"hops,omitempty"`   // of kinds with hops, from the first page on
}

// Hop is an entity of a chain: the page before it says by what it is described.
type Hop struct {
	Entity      string `parquet:"entity" json:"entity"`
	Description string `parquet:"description" json:"description"` // what stands in its place in the question
	Evidence    string `parquet:"evidence" json:"evidence"`       // where the page before says so
	PageTitle   string `parquet:"page_title" json:"page_title"`   // of its own page
	PageLink    string `parquet:"page_link" json:"page_link"`
	PageHash    string `parquet:"page_sha256" json:"page_sha256"`
}

// Stages of the funnel, in order. What does not pass one is refused there.
const (
	StageImage    = "image"    // an image of the concept was found
	StageBoxes    = "boxes"    // there are parts of the image to search for
	StageFound    = "found"    // a search for one of them found what it shows
	StagePage     = "page"     // a page that speaks of it was found
	StageLinked   = "linked"   // every entity of the chain leads to another one with a page
	StageWritten  = "written"  // the writer gave a question
	StageForm     = "form"     // of the wanted form, language and type
	StageGrounded = "grounded" // the answer stands in the page
	StageFolded   = "folded"   // every entity's name is replaced by its description
	StageSealed   = "sealed"   // the question does not give the answer, nor name what the image is for
	StageBlind    = "blind"    // it is not answered without image and page
	StageSight    = "sight"    // nor from the image alone
	StageUnique   = "unique"   // it has one answer
	StageRight    = "right"    // the checker finds the answer right
	StageNew      = "new"      // no other question of the set is the same
	StageUnleaked = "unleaked" // and no held-out one
	StageFailed   = "failed"   // a server broke it: no verdict on the question
	StageKept     = "kept"     // it is in the dataset
)

// Stages in the order in which a question passes them.
var Stages = []string{StageImage, StageBoxes, StageFound, StagePage, StageLinked, StageWritten, StageForm, StageGrounded, StageFolded, StageSealed,
	StageBlind, StageSight, StageUnique, StageRight, StageNew, StageUnleaked}

// stages are those that the questions of a recipe pass.
func stages(s *recipe.Synth) []string {
	crops := slices.ContainsFunc(s.Kinds, func(k recipe.Kind) bool { return k.Crops })
	hops := slices.ContainsFunc(s.Kinds, func(k recipe.Kind) bool { return k.Hops > 0 })
	return slices.DeleteFunc(slices.Clone(Stages), func(stage string) bool {
		switch stage {
		case StageBoxes, StageFound:
			return !crops
		case StageLinked, StageFolded:
			return !hops
		case StageSight:
			return s.Sight == ""
		}
		return false
	})
}

// Outcome is what became of one concept and kind: a journal payload, and a line of
// outcomes.jsonl.
type Outcome struct {
	Key    string         `json:"key"`
	Kind   string         `json:"kind"`
	Stage  string         `json:"stage"`            // where it ended; StageKept
	Reason string         `json:"reason,omitempty"` // what is counted
	Detail string         `json:"detail,omitempty"`
	Row    *Row           `json:"row,omitempty"` // as far as it came
	Used   manifest.Usage `json:"used"`
}

// RefusedByChecker says whether the question came as far as the checker's verdicts
// and one was against it.
func (o *Outcome) RefusedByChecker() bool {
	return o.Row != nil && (o.Stage == StageUnique || o.Stage == StageRight) && o.Reason != ask.NoVerdict
}

func (o *Outcome) refuse(stage, reason, detail string) {
	o.Stage, o.Reason, o.Detail = stage, reason, detail
}

// Funnel counts what came out of every stage, and why the rest did not.
type Funnel struct {
	In      int            `json:"in"` // concepts times kinds
	Kept    int            `json:"kept"`
	Failed  int            `json:"failed"`
	Passed  []Step         `json:"passed"` // by stage, in order
	Refused []Reason       `json:"refused"`
	Types   map[string]int `json:"types"` // of the kept
	Kinds   map[string]int `json:"kinds"`
	Usage   manifest.Usage `json:"usage"`
}

// Step is how many passed a stage.
type Step struct {
	Stage string `json:"stage"`
	N     int    `json:"n"`
}

// Reason is how many were refused at a stage for a reason.
type Reason struct {
	Stage  string `json:"stage"`
	Reason string `json:"reason"`
	N      int    `json:"n"`
}
