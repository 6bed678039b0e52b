package protocol

import "searchloop/internal/recipe"

// direct is the workflow without tools: the one turn is the answer, in answer tags
// or bare.
type direct struct{ recipe.Protocol }

func (p direct) User(q Question) string         { return p.UserPrefix + q.Text }
func (p direct) Before(Question) []Call         { return nil }
func (p direct) Read(text string, _ Place) Turn { return plainAnswer(text, Think) }
func (p direct) Role() string                   { return RoleUser }
func (p direct) Tell(o Observation) string      { return o.Text }
func (p direct) Stops() []string                { return nil }
