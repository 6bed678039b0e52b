package protocol

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"searchloop/internal/recipe"
)

// visionDeepResearch is Vision-DeepResearch's protocol:
//
//	<think> … </think>
//	<tool_call> {"name": "search", "arguments": {"query": ["…"]}} </tool_call>
//	<answer> … </answer>
//
// A call is JSON5. Results come as user messages in <tool_response>. A call goes
// before an answer in the same turn; what follows a result that the model invents
// is cut off; a turn with neither is told so.
type visionDeepResearch struct{ recipe.Protocol }

// Names of vision-deepresearch's tools.
const (
	ToolSearch = "search"
	ToolCrop   = "crop_and_search"
	ToolVisit  = "visit"
	ToolPython = "PythonInterpreter"
)

// What the policy is told in vision-deepresearch.
const (
	NoStep       = "Error: this turn has neither a tool call nor an answer. Think inside <think> and </think>, then write one <tool_call> or one <answer>."
	NotJSON5     = "Error: the tool call is not a JSON object. Write it as {\"name\": …, \"arguments\": {…}}, with every bracket and quotation mark closed."
	BadQuery     = `Error: "query" must be a list of one or more texts.`
	BadURL       = `Error: "url" must be a list of one to 5 addresses.`
	BadGoal      = `Error: "goal" must be a text that says what to look for.`
	BadImageID   = `Error: "image_id" must be the number of one of the question's images.`
	BadBoxes     = `Error: "bbox" must be a list of boxes [x1, y1, x2, y2], each number from 0 to 1000, x1 < x2 and y1 < y2.`
	NoPython     = "Error: the Python interpreter is not available here."
	BadCode      = "Error: PythonInterpreter needs its program between <code> and </code>, behind the JSON object and inside the tool call."
	maxVisitURLs = 5
	maxBoxes     = 10
)

// User names the images, so that a call can refer to them.
func (p visionDeepResearch) User(q Question) string {
	var b strings.Builder
	for i := range q.Images {
		fmt.Fprintf(&b, "image_id: %d\n", i+1)
	}
	return b.String() + p.UserPrefix + q.Text
}

func (p visionDeepResearch) Before(Question) []Call { return nil }
func (p visionDeepResearch) Role() string           { return RoleUser }
func (p visionDeepResearch) Stops() []string        { return nil }

func (p visionDeepResearch) Tell(o Observation) string {
	if o.Problem && o.Call.Name == "" {
		return o.Text // a correction, not a result
	}
	return "<" + ToolResponse + ">\n" + strings.TrimSpace(Tame(o.Text, Think, ToolCall, ToolResponse, Answer)) + "\n</" + ToolResponse + ">"
}

func (p visionDeepResearch) Read(text string, at Place) Turn {
	var t Turn
	all := blocks(text, []string{ToolCall, Answer}, Think, ToolResponse)
	for _, b := range all {
		if b.Name == ToolCall {
			t.Calls = append(t.Calls, visionCall(b.Body))
		}
	}
	if len(t.Calls) > 0 {
		if at.Final { // there is no round left that could run it
			if a := plainAnswer(text, Think); hasAnswer(all) {
				t.Answer, t.HasAnswer = a.Answer, true
			}
		}
		return t
	}
	switch {
	case hasAnswer(all) || at.Final:
		return plainAnswer(text, Think)
	case openCall(text):
		return Turn{Calls: []Call{{Problem: NotJSON5}}}
	}
	return Turn{Problem: NoStep}
}

func hasAnswer(all []block) bool {
	for _, b := range all {
		if b.Name == Answer {
			return true
		}
	}
	return false
}

// openCall says whether a text has a call that is not closed, outside of thoughts.
func openCall(text string) bool {
	head, _, _ := strings.Cut(text, "<"+ToolResponse+">")
	i := strings.LastIndex(head, "<"+ToolCall+">")
	return i >= 0 && !strings.Contains(head[i:], "</"+Think+">")
}

// visionCall reads the text of a call. The name alone decides what it is: a query
// may well hold the word python.
func visionCall(text string) (c Call) {
	body := strings.TrimSpace(text)
	code := ""
	if i := strings.Index(body, "<code>"); i >= 0 && strings.HasSuffix(body, "</code>") {
		// PythonInterpreter: the code stands behind the object.
		body, code = body[:i], strings.TrimSuffix(body[i+len("<code>"):], "</code>")
	}
	v, err := parseJSON5(body)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		c.Problem = NotJSON5
		return c
	}
	c.Name, _ = object["name"].(string)
	args, ok := object["arguments"].(map[string]any)
	if c.Name == "" || !ok {
		c.Name, c.Problem = "", NotJSON5
		return c
	}
	if b, err := json.Marshal(args); err == nil { // keys sorted
		c.Args = strings.ToValidUTF8(string(b), "\uFFFD")
	}
	switch c.Name {
	case ToolSearch:
		c.Queries, ok = texts(args["query"], MaxQueries)
		if !ok {
			c.Problem = BadQuery
		}
	case ToolVisit:
		c.URLs, ok = texts(args["url"], maxVisitURLs)
		if !ok {
			c.Problem = BadURL
		} else {
			c.goal(args)
		}
	case ToolCrop:
		c.crop(args)
	case ToolPython:
		if c.Code = strings.Trim(code, "\n"); strings.TrimSpace(c.Code) == "" {
			c.Problem = BadCode
		}
	}
	return c
}

func (c *Call) goal(args map[string]any) {
	if c.Goal, _ = args["goal"].(string); strings.TrimSpace(c.Goal) == "" {
		c.Problem = BadGoal
	}
}

func (c *Call) crop(args map[string]any) {
	switch id := args["image_id"].(type) {
	case float64:
		c.Image = int(min(max(id, 0), 1000))
	case string:
		c.Image, _ = strconv.Atoi(strings.TrimSpace(id))
	}
	if c.Image < 1 {
		c.Problem = BadImageID
		return
	}
	list, _ := args["bbox"].([]any)
	if len(list) == 4 {
		if _, one := list[0].(float64); one {
			list = []any{list}
		}
	}
	if len(list) == 0 || len(list) > maxBoxes {
		c.Problem = BadBoxes
		return
	}
	for _, v := range list {
		b, ok := box(v)
		if !ok {
			c.Boxes, c.Problem = nil, BadBoxes
			return
		}
		c.Boxes = append(c.Boxes, b)
	}
	c.goal(args)
}

// box reads four numbers and keeps them in the image; an empty one is none.
func box(v any) (b Box, ok bool) {
	list, _ := v.([]any)
	if len(list) != 4 {
		return b, false
	}
	for i, v := range list {
		n, ok := v.(float64)
		if !ok {
			return b, false
		}
		b[i] = min(max(n, 0), 1000)
	}
	return b, b[0] < b[2] && b[1] < b[3]
}

// texts reads a list of texts, or one text.
func texts(v any, most int) (out []string, ok bool) {
	if s, one := v.(string); one {
		v = []any{s}
	}
	list, _ := v.([]any)
	for _, v := range list {
		s, ok := v.(string)
		if s = oneLine(s); !ok || s == "" {
			return nil, false
		}
		out = append(out, s)
	}
	return out, len(out) > 0 && len(out) <= most
}
