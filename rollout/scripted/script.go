// Package scripted is an OpenAI-compatible chat server whose turns come from a
// script instead of a model: an oracle that answers from the ground truth, a
// judge that compares strings, a teacher that plays a world. It also fails on
// demand in the ways in which servers fail. Jobs use it as a stand-in for a
// policy or a judge, tests use it for everything.
//
// Requests go in, turns come out; the question behind a conversation is found in
// a questions dataset. It runs no model and keeps no state but its fault counts.
package scripted

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"searchloop/corpus"
	"searchloop/internal/fail"
)

// Message is one message of a request.
type Message struct {
	Role   string
	Text   string
	Images []string // SHA-256 in hex of each picture's encoded bytes
}

// Conversation is what a script sees of one request.
type Conversation struct {
	Messages []Message
	Question *corpus.Question // the question asked, nil when the dataset has none like it
	Rank, Of int              // place of the question among all, in an order that has nothing to do with their content (by SHA-256 of id), and how many there are
	Seed     int64            // the request's seed
	Turn     int              // turns before this one, those inside one message counted each (where token ids are spoken)
}

// Observations are the texts of the tool messages so far.
func (c Conversation) Observations() []string {
	var out []string
	for _, m := range c.Messages {
		if m.Role == "tool" {
			out = append(out, m.Text)
		}
	}
	return out
}

// Last is the last message of a role; the zero Message when there is none.
func (c Conversation) Last(role string) Message {
	for _, m := range slices.Backward(c.Messages) {
		if m.Role == role {
			return m
		}
	}
	return Message{}
}

// Script writes a server's turns. Reply must be a pure function of the
// conversation and safe for concurrent use; an error becomes status 500.
type Script interface {
	Reply(conv Conversation) (string, error)
}

// Func is a Script made of a function.
type Func func(Conversation) (string, error)

// Reply calls f.
func (f Func) Reply(c Conversation) (string, error) { return f(c) }

var registry struct {
	sync.Mutex
	scripts map[string]Script
}

// Register names a script for Lookup. It is called from init functions; a name
// given twice panics.
func Register(name string, s Script) {
	registry.Lock()
	defer registry.Unlock()
	if registry.scripts == nil {
		registry.scripts = map[string]Script{}
	}
	if registry.scripts[name] != nil {
		panic("scripted: two scripts are named " + name)
	}
	registry.scripts[name] = s
}

// Lookup finds a script by name. right is the share of questions that the
// oracle answers rightly; other scripts ignore it.
func Lookup(name string, right float64) (Script, error) {
	if name == "oracle" {
		if !(right >= 0 && right <= 1) {
			return nil, fail.New(fail.Usage, "--right", fmt.Sprint(right), "a share is between 0 and 1")
		}
		return Oracle{Right: right}, nil
	}
	registry.Lock()
	defer registry.Unlock()
	if s := registry.scripts[name]; s != nil {
		return s, nil
	}
	names := []string{"oracle"}
	for n := range registry.scripts {
		names = append(names, n)
	}
	slices.Sort(names)
	return nil, fail.WithHint(fail.New(fail.Usage, "--script", name, "no such script"), "scripts: "+strings.Join(names, ", "))
}
