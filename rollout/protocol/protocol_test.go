package protocol

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	good := `<tool_call>{"name": "text_search", "arguments": {"query_list": [" a ", "b"], "x": 1}}</tool_call>`
	call := Call{Name: "text_search", Args: `{"query_list":[" a ","b"],"x":1}`, Queries: []string{"a", "b"}}
	bad := func(p string) []Call { return []Call{{Problem: p}} }
	for _, c := range []struct {
		name, text string
		want       Turn
	}{
		{"nothing", "", Turn{}},
		{"prose", "the answer is 4 < 5 </", Turn{}},
		{"answer", "<think>x</think>\n<answer> Paris\n</answer>", Turn{Answer: "Paris", HasAnswer: true}},
		{"last answer", "<answer>a</answer><answer>b</answer>", Turn{Answer: "b", HasAnswer: true}},
		{"empty answer", "<answer></answer>", Turn{HasAnswer: true}},
		{"open answer", "<answer>Paris", Turn{}},
		{"nested answer", "<answer>a <answer>b</answer>", Turn{Answer: "b", HasAnswer: true}},
		{"answer closed twice", "<answer>a</answer></answer>", Turn{Answer: "a", HasAnswer: true}},
		{"call", "<think>x</think>\n" + good, Turn{Calls: []Call{call}}},
		{"several calls", good + good, Turn{Calls: []Call{call, call}}},
		{"call and answer", good + "<answer>x</answer>", Turn{Calls: []Call{call}, Answer: "x", HasAnswer: true}},
		{"thoughts are not run", "<think>" + good + "<answer>no</answer></think>", Turn{}},
		{"open think", "<think>hm " + good, Turn{Calls: []Call{call}}},
		{"invented result", "<tool_response>" + good + "<answer>no</answer></tool_response><answer>yes</answer>", Turn{Answer: "yes", HasAnswer: true}},
		{"open invented result", "<answer>a</answer><tool_response>" + good + "<answer>no</answer>", Turn{Answer: "a", HasAnswer: true}},
		{"call inside answer", "<answer>" + good + "</answer>", Turn{Answer: good, HasAnswer: true}},
		{"open call", `<tool_call>{"name": "text_search"}<answer>x</answer>`, Turn{Calls: bad(NotClosed)}},
		{"call in a call", `<tool_call>` + good, Turn{Calls: bad(NotJSON)}},
		{"broken json", `<tool_call>{"name": "text_search",</tool_call>`, Turn{Calls: bad(NotJSON)}},
		{"empty call", `<tool_call></tool_call>`, Turn{Calls: bad(NotJSON)}},
		{"two objects", `<tool_call>{}{}</tool_call>`, Turn{Calls: bad(NotJSON)}},
		{"not utf-8", "<tool_call>\xff</tool_call>", Turn{Calls: bad(NotJSON)}},
		{"list", `<tool_call>[1]</tool_call>`, Turn{Calls: bad(NotACall)}},
		{"null", `<tool_call>null</tool_call>`, Turn{Calls: bad(NotACall)}},
		{"no name", `<tool_call>{"arguments": {}}</tool_call>`, Turn{Calls: bad(NotACall)}},
		{"name is a number", `<tool_call>{"name": 1, "arguments": {}}</tool_call>`, Turn{Calls: bad(NotACall)}},
		{"capital key", `<tool_call>{"Name": "a", "arguments": {}}</tool_call>`, Turn{Calls: bad(NotACall)}},
		{"no arguments", `<tool_call>{"name": "a"}</tool_call>`, Turn{Calls: []Call{{Name: "a", Problem: NotACall}}}},
		{"null arguments", `<tool_call>{"name": "a", "arguments": null}</tool_call>`, Turn{Calls: []Call{{Name: "a", Problem: NotACall}}}},
		{"arguments as text", `<tool_call>{"name": "a", "arguments": "{}"}</tool_call>`, Turn{Calls: []Call{{Name: "a", Problem: NotACall}}}},
		{"no queries", `<tool_call>{"name": "a", "arguments": {}}</tool_call>`, Turn{Calls: []Call{{Name: "a", Args: "{}", Problem: BadQueries}}}},
		{"query as text", `<tool_call>{"name":"a","arguments":{"query_list":"q"}}</tool_call>`, Turn{Calls: []Call{{Name: "a", Args: `{"query_list":"q"}`, Problem: BadQueries}}}},
		{"a query is a number", `<tool_call>{"name":"a","arguments":{"query_list":["q",1]}}</tool_call>`, Turn{Calls: []Call{{Name: "a", Args: `{"query_list":["q",1]}`, Problem: BadQueries}}}},
		{"a query is blank", `<tool_call>{"name":"a","arguments":{"query_list":["q"," "]}}</tool_call>`, Turn{Calls: []Call{{Name: "a", Args: `{"query_list":["q"," "]}`, Problem: BadQueries}}}},
	} {
		if got := Parse(c.text); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
	many := `<tool_call>{"name":"a","arguments":{"query_list":["q"` + strings.Repeat(`,"q"`, MaxQueries) + `]}}</tool_call>`
	if got := Parse(many); got.Calls[0].Problem != TooManyQueries {
		t.Errorf("many queries: %+v", got)
	}
}

func TestTextsForTheModel(t *testing.T) {
	if got := UnknownTool(strings.Repeat("x", 50), []string{"a", "b"}); got != `Error: there is no tool "`+strings.Repeat("x", 40)+`…". Tools: a, b.` {
		t.Error(got)
	}
	if TooManyCalls(1) == TooManyCalls(2) || !strings.Contains(TooManyCalls(2), "first 2") {
		t.Error(TooManyCalls(2))
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("ä", 9999)
	if Cut(long, 9999) != long || Cut(long, 0) != long {
		t.Error("a text of the limit's length stays whole")
	}
	got := Cut("x"+long, 9999)
	want := "x" + strings.Repeat("ä", 4998) + CutMark + strings.Repeat("ä", 4999)
	if got != want {
		t.Errorf("cut to %d runes", utf8.RuneCountInString(got))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "<answer>a</answer>", "<think><tool_call></think>", "<tool_call>{}</tool_call>", "<</answer><answer>", "<tool_response>", "\xff<answer>\xfe</answer>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		turn := Parse(s)
		for _, c := range turn.Calls {
			if c.Problem == "" && (c.Name == "" || len(c.Queries) == 0) {
				t.Fatalf("a good call without name or query: %+v", c)
			}
		}
		last := 0
		for _, tag := range Tags(s) {
			if tag.From < last || s[tag.From] != '<' || s[tag.To-1] != '>' || !strings.Contains(s[tag.From:tag.To], tag.Name) {
				t.Fatalf("tag %+v of %q", tag, s)
			}
			last = tag.To
		}
		// Whatever stands in a thought or in an invented result is neither run nor graded.
		for _, name := range []string{Think, ToolResponse} {
			if strings.Contains(s, "</"+name+">") {
				continue
			}
			if got := Parse("<" + name + ">" + s + "</" + name + ">"); got.HasAnswer || len(got.Calls) > 0 {
				t.Fatalf("%s: %+v", name, got)
			}
		}
	})
}
