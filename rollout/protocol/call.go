package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"searchloop/internal/jsonscan"
)

// MaxQueries is how many queries one call may hold.
const MaxQueries = 10

// What the model is told about a call that cannot be run. These texts are part of
// the protocol: a policy is trained on them.
const (
	NotClosed  = "Error: the tool call has no end tag."
	NotJSON    = "Error: the tool call is not valid JSON."
	NotACall   = `Error: a tool call is a JSON object with "name" and "arguments".`
	BadQueries = `Error: "query_list" must be a list of one or more texts.`
)

// TooManyQueries is the problem of a call with more than MaxQueries queries.
var TooManyQueries = fmt.Sprintf("Error: a tool call holds at most %d queries.", MaxQueries)

// TooManyCalls answers the calls of a turn beyond those that are run.
func TooManyCalls(run int) string {
	if run == 1 {
		return "Error: only the first tool call of a turn is run."
	}
	return fmt.Sprintf("Error: only the first %d tool calls of a turn are run.", run)
}

// UnknownTool is the problem of a call to a tool that does not exist.
func UnknownTool(name string, tools []string) string {
	if name == ToolPython {
		return NoPython
	}
	if r := []rune(name); len(r) > 40 {
		name = string(r[:40]) + "…"
	}
	return fmt.Sprintf("Error: there is no tool %q. Tools: %s.", name, strings.Join(tools, ", "))
}

// Call is one tool call.
type Call struct {
	Name    string   // "" when the call names none
	Args    string   // the arguments as compact JSON; "" when there are none
	Queries []string // arguments.query_list, trimmed
	URLs    []string // pages to visit
	Image   int      // number of an image of the question, from 1
	Boxes   []Box    // parts of that image
	Goal    string   // what is looked for there
	Code    string   // program to be run
	Problem string   // why the call cannot be run, in the words the model is told; "" for a good call
}

// Box is a part of an image: left, top, right, bottom, each 0 to 1000 over the
// image's width or height.
type Box [4]float64

// search is a call of a tool that takes one text.
func search(name, query string) Call {
	args, _ := json.Marshal(map[string][]string{"query_list": {query}})
	return Call{Name: name, Args: string(args), Queries: []string{query}}
}

// oneLine is a query as it is sent: white space of any kind and length is one
// space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// parseCall reads the text between the tags of a call. Arguments other than
// query_list are allowed and ignored.
func parseCall(text string) Call {
	if c, ok := scanCall(text); ok {
		return c
	}
	return readCall(text)
}

// readCall reads any call.
func readCall(text string) (c Call) {
	var object map[string]json.RawMessage
	if !json.Valid([]byte(text)) {
		c.Problem = NotJSON
		return c
	}
	if json.Unmarshal([]byte(text), &object) != nil {
		c.Problem = NotACall
		return c
	}
	if json.Unmarshal(object["name"], &c.Name) != nil || c.Name == "" {
		c.Problem = NotACall
		return c
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(object["arguments"], &args) != nil || args == nil {
		c.Problem = NotACall
		return c
	}
	var compact bytes.Buffer
	if json.Compact(&compact, object["arguments"]) == nil {
		c.Args = strings.ToValidUTF8(compact.String(), "�")
	}
	var list []any
	if json.Unmarshal(args["query_list"], &list) != nil || len(list) == 0 {
		c.Problem = BadQueries
		return c
	}
	if len(list) > MaxQueries {
		c.Problem = TooManyQueries
		return c
	}
	for _, q := range list {
		s, ok := q.(string)
		if s = strings.TrimSpace(s); !ok || s == "" {
			c.Problem, c.Queries = BadQueries, nil
			return c
		}
		c.Queries = append(c.Queries, s)
	}
	return c
}

// scanCall reads a good call of the usual form in one pass; ok is false for any other,
// which readCall reads with encoding/json.
func scanCall(text string) (c Call, ok bool) {
	s := jsonscan.New([]byte(text))
	var args []byte
	var seen uint
	s.Object(func(name []byte) {
		switch string(name) {
		case "name":
			s.Once(&seen, 0)
			c.Name = s.String()
		case "arguments":
			s.Once(&seen, 1)
			args = s.Skip()
		default:
			s.Skip()
		}
	})
	if !s.End() || c.Name == "" || len(args) == 0 || args[0] != '{' {
		return Call{}, false
	}
	s, seen = jsonscan.New(args), 0
	s.Object(func(name []byte) {
		if string(name) != "query_list" {
			s.Skip()
			return
		}
		s.Once(&seen, 0)
		s.Array(func() {
			q := strings.TrimSpace(s.String())
			if c.Queries = append(c.Queries, q); q == "" {
				s.Fail()
			}
		})
	})
	if !s.End() || len(c.Queries) == 0 || len(c.Queries) > MaxQueries {
		return Call{}, false
	}
	c.Args = string(jsonscan.Compact(args))
	return c, true
}
