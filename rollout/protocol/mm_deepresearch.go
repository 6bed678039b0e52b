package protocol

import "searchloop/internal/recipe"

// mmDeepResearch is
//
//	<think> … </think>
//	<tool_call> {"name": "text_search", "arguments": {"query_list": ["…"]}} </tool_call>
//	<answer> … </answer>
//
// with results as messages of role tool. Turns are read by Parse.
type mmDeepResearch struct{ recipe.Protocol }

func (p mmDeepResearch) User(q Question) string      { return p.UserPrefix + q.Text }
func (p mmDeepResearch) Before(Question) []Call      { return nil }
func (p mmDeepResearch) Read(s string, _ Place) Turn { return Parse(s) }
func (p mmDeepResearch) Role() string                { return RoleTool }
func (p mmDeepResearch) Tell(o Observation) string   { return o.Text }
func (p mmDeepResearch) Stops() []string             { return nil }
