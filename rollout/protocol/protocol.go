// Package protocol is how policies and their environment talk: one file for each
// system's way of doing it. A turn of the policy goes in as text; calls and the
// answer come out. What a tool gives back goes in; the text that the policy reads
// comes out.
//
// Reading is total: any bytes give a result, and what is wrong with a call is said
// in the words that the model is told. Only what the policy wrote is ever read:
// tags inside tool results mean nothing. The package runs no tool and grades
// nothing.
package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// Roles of what the environment says.
const (
	RoleTool   = "tool"
	RoleUser   = "user"
	RoleInline = "inline" // inside the assistant's turn, which goes on after it
)

// Protocol is one system's way of talking. Implementations hold nothing but
// settings and are safe for concurrent use.
type Protocol interface {
	// User is the text of the first user message; the question's images stand before it.
	User(q Question) string
	// Before are the calls that are made for the policy before its first turn.
	Before(q Question) []Call
	// Read says what a turn asks for. at counts the tool rounds before it.
	Read(text string, at Place) Turn
	// Role is where the environment speaks.
	Role() string
	// Tell is an observation as the policy reads it.
	Tell(o Observation) string
	// Stops are the texts that end a turn; the turn keeps the one that did.
	Stops() []string
}

// Question is what a protocol knows of a question.
type Question struct {
	Text   string
	Images int
}

// Place is where in a trajectory a turn stands.
type Place struct {
	Round int  // rounds before it
	Final bool // it is the last turn, and the policy was told so
}

// Observation is what came of a call, or what is wrong with a turn.
type Observation struct {
	Call     Call
	Text     string // already cut to its limit
	Problem  bool   // Text says why there is no result
	Question Question
}

var known = map[string]func(recipe.Protocol) Protocol{
	"mm-deepresearch":     func(p recipe.Protocol) Protocol { return mmDeepResearch{p} },
	"search-r1":           func(p recipe.Protocol) Protocol { return searchR1{p} },
	"mmsearch-r1":         func(p recipe.Protocol) Protocol { return mmSearchR1{p} },
	"vision-deepresearch": func(p recipe.Protocol) Protocol { return visionDeepResearch{p} },
	"rag":                 func(p recipe.Protocol) Protocol { return rag{p} },
	"direct":              func(p recipe.Protocol) Protocol { return direct{p} },
}

// New is the protocol of a recipe. An unknown name is a usage error.
func New(p recipe.Protocol) (Protocol, error) {
	if f := known[p.Name]; f != nil {
		return f(p), nil
	}
	return nil, fail.WithHint(fail.New(fail.Usage, "read recipe", "", "no protocol is named %q", p.Name),
		"protocols: "+strings.Join(Names(), ", "))
}

// Names are the protocols there are, sorted.
func Names() []string { return slices.Sorted(maps.Keys(known)) }

// System is the system message of a question; "" for none.
func System(p recipe.Protocol, q Question) string {
	s := p.System
	if q.Images == 0 && p.SystemText != "" {
		s = p.SystemText
	}
	if s != "" && p.Date != "" {
		s += "\nCurrent date: " + p.Date
	}
	return s
}

// Final is what is added to the last observation when the policy has one turn left.
func Final(p recipe.Protocol) string {
	if p.FinalText != "" {
		return p.FinalText
	}
	return fmt.Sprintf("This was the last search. Give your answer now, inside <%s> and </%s>.", Answer, Answer)
}

// plainAnswer is the answer of a turn that may do without tags: the last closed
// answer block, or else all of the text but closed thoughts.
func plainAnswer(text, thought string) Turn {
	if all := blocks(text, []string{Answer}, thought, ToolResponse); len(all) > 0 {
		return Turn{Answer: strings.TrimSpace(all[len(all)-1].Body), HasAnswer: true}
	}
	rest := text
	for {
		i := strings.Index(rest, "<"+thought+">")
		if i < 0 {
			break
		}
		j := strings.Index(rest[i:], "</"+thought+">")
		if j < 0 {
			break
		}
		rest = rest[:i] + rest[i+j+len(thought)+3:]
	}
	rest = strings.TrimSpace(rest)
	return Turn{Answer: rest, HasAnswer: rest != ""}
}
