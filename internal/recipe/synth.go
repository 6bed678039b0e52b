package recipe

import (
	"errors"
	"fmt"
)

// Synth is how questions are made from images and pages.
type Synth struct {
	Kinds    []Kind  `yaml:"kinds,omitempty" json:"kinds,omitempty"` // questions made of every concept
	Types    []Named `yaml:"types,omitempty" json:"types,omitempty"` // the taxonomy: what questions ask for
	Language string  `yaml:"language,omitempty" json:"language,omitempty"`
	System   string  `yaml:"system,omitempty" json:"system,omitempty"` // system message of the writer

	Writer  Speaker `yaml:"writer,omitempty" json:"writer,omitzero"`
	Checker Speaker `yaml:"checker,omitempty" json:"checker,omitzero"` // another model than the writer's
	Judge   string  `yaml:"judge_system,omitempty" json:"judge_system,omitempty"`
	Blind   string  `yaml:"blind,omitempty" json:"blind,omitempty"`   // .Question: asked without image and page; a right answer refuses the question. Empty: no such check
	Unique  string  `yaml:"unique,omitempty" json:"unique,omitempty"` // .Question .Answer .Page: has it one answer? Empty: no such check
	Right   string  `yaml:"right,omitempty" json:"right,omitempty"`   // .Question .Answer .Page: is the answer right? Empty: no such check

	Sight string `yaml:"sight,omitempty" json:"sight,omitempty"` // .Question: asked with the image and without pages; a right answer refuses the question. Empty: no such check

	Looking `yaml:",inline"`
	Link    string `yaml:"link,omitempty" json:"link,omitempty"` // .Entity .Page: which other entity of the page comes next, and by what it is described
	Fold    string `yaml:"fold,omitempty" json:"fold,omitempty"` // .Question .Entity .Description: the question with the one in the other's place

	Hits          int `yaml:"hits,omitempty" json:"hits,omitempty"`             // results of a search that are looked at; 0: 5
	PageChars     int `yaml:"page_chars,omitempty" json:"page_chars,omitempty"` // of a page that models are shown; 0: 6000
	MinPageChars  int `yaml:"min_page_chars,omitempty" json:"min_page_chars,omitempty"`
	QuestionWords int `yaml:"question_words,omitempty" json:"question_words,omitempty"` // at most; 0: 40
	AnswerWords   int `yaml:"answer_words,omitempty" json:"answer_words,omitempty"`     // at most; 0: 8
	ImagePixels   int `yaml:"image_pixels,omitempty" json:"image_pixels,omitempty"`     // area of an image that models are shown; 0: 1048576

	NearText    float64 `yaml:"near_text,omitempty" json:"near_text,omitempty"` // similarity of questions that are the same; 0: 0.55
	Concurrency int     `yaml:"concurrency,omitempty" json:"-"`
	TimeoutSec  int     `yaml:"timeout_sec,omitempty" json:"-"`
}

// Looking is how the things in an image are found by searching for parts of it.
type Looking struct {
	Boxes    string `yaml:"boxes,omitempty" json:"boxes,omitempty"`         // .Concept .Most: asks for boxes around things, of images that bring none
	Same     string `yaml:"same,omitempty" json:"same,omitempty"`           // .What .Hit: does what was found show the same thing as the part?
	Entity   string `yaml:"entity,omitempty" json:"entity,omitempty"`       // .What .Hit: the name of the thing
	Step     string `yaml:"step,omitempty" json:"step,omitempty"`           // .What .Why .Args: the turn of a policy that asks for a look, in the recipe's protocol
	Scales   []int  `yaml:"scales,omitempty" json:"scales,omitempty"`       // per cent of a box, around its middle; empty: 100
	MaxBoxes int    `yaml:"max_boxes,omitempty" json:"max_boxes,omitempty"` // of an image that are looked at; 0: 4
}

// Kind is one sort of question. Its prompt is a text/template over .Concept, .Page,
// .Title and .Types.
type Kind struct {
	Name   string `yaml:"name" json:"name"`
	Image  bool   `yaml:"image" json:"image"`                     // the question is about an image that is shown with it
	Crops  bool   `yaml:"crops,omitempty" json:"crops,omitempty"` // what the image shows is found by searching for parts of it
	Hops   int    `yaml:"hops,omitempty" json:"hops,omitempty"`   // pages between the first one and that of the answer
	Prompt string `yaml:"prompt" json:"prompt"`
}

// Named is a name with what it means.
type Named struct {
	Name string `yaml:"name" json:"name"`
	Doc  string `yaml:"doc" json:"doc"`
}

// Speaker is a model that writes or checks.
type Speaker struct {
	Model       string  `yaml:"model,omitempty" json:"model,omitempty"` // empty: the server's only one
	KeyEnv      string  `yaml:"key_env,omitempty" json:"-"`             // environment variable of its key
	Temperature float32 `yaml:"temperature" json:"temperature"`
	MaxTokens   int     `yaml:"max_tokens,omitempty" json:"max_tokens,omitempty"`
	PromptPrice float64 `yaml:"prompt_price,omitempty" json:"prompt_price,omitempty"` // dollars a million tokens of prompts
	Price       float64 `yaml:"price,omitempty" json:"price,omitempty"`               // and of replies
}

// check refuses what could not be carried out.
func (s *Synth) check() error {
	seen := map[string]bool{}
	for _, k := range s.Kinds {
		if k.Name == "" || k.Prompt == "" || seen[k.Name] {
			return fmt.Errorf("synth.kinds: the kind %q has no name or no prompt, or is there twice", k.Name)
		}
		seen[k.Name] = true
		switch {
		case k.Hops < 0 || k.Hops > 8:
			return fmt.Errorf("synth.kinds: %s has %d hops, want 0 to 8", k.Name, k.Hops)
		case k.Hops > 0 && (s.Link == "" || s.Fold == ""):
			return fmt.Errorf("synth.kinds: %s has hops, which need synth.link and synth.fold", k.Name)
		case k.Crops && !k.Image:
			return fmt.Errorf("synth.kinds: %s has crops and no image", k.Name)
		case k.Crops && (s.Same == "" || s.Entity == "" || s.Step == ""):
			return fmt.Errorf("synth.kinds: %s has crops, which need synth.same, synth.entity and synth.step", k.Name)
		}
	}
	for _, n := range s.Scales {
		if n < 10 || n > 1000 {
			return fmt.Errorf("synth.scales: %d, want per cents from 10 to 1000", n)
		}
	}
	if len(s.Scales) > 10 || s.MaxBoxes < 0 {
		return errors.New("synth: more than 10 scales, or max_boxes below 0")
	}
	types := map[string]bool{}
	for _, t := range s.Types {
		if t.Name == "" || types[t.Name] {
			return fmt.Errorf("synth.types: the type %q has no name or is there twice", t.Name)
		}
		types[t.Name] = true
	}
	if s.NearText < 0 || s.NearText > 1 {
		return fmt.Errorf("synth.near_text is %v, want 0 to 1", s.NearText)
	}
	if s.Writer.Price < 0 || s.Writer.PromptPrice < 0 || s.Checker.Price < 0 || s.Checker.PromptPrice < 0 {
		return errors.New("synth: a price is below 0")
	}
	return nil
}
