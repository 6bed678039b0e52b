package protocol

import (
	"reflect"
	"testing"
)

// FuzzScanCall: a call that is read in one pass is the one that encoding/json reads.
func FuzzScanCall(f *testing.F) {
	for _, s := range []string{
		`{"name": "text_search", "arguments": {"query_list": ["a b", " c\u00e9\n"], "more": [1, {"x": "{ \\" }"}]}}`, "\n{\"arguments\":\t{ \"query_list\" :[\"a\"]},\"name\":\"t\"}\r\n",
		`{"name":"t","arguments":{"query_list":["a"],"query_list":["b"]}}`, `{"name":"t","name":"u","arguments":{"query_list":["a"]}}`,
		`{"name":"t","arguments":{"Query_list":["a"],"query_list":["b"]}}`, `{"name":"t","arguments":{"query_list":["\ud800"]}}`,
		`{"name":"t","arguments":{"query_list":[""]}}`, `{"name":"t","arguments":{"query_list":"a"}}`, `{"name":"","arguments":{"query_list":["a"]}}`,
		`{"name":"t","arguments":{"query_list":["1","2","3","4","5","6","7","8","9","10","11"]}}`, `{"name":"t","arguments":null}`, `{"name":"t","arguments":{"query_list":["a"]}} x`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := scanCall(s)
		if want := readCall(s); ok && !reflect.DeepEqual(c, want) {
			t.Errorf("%q: %+v, want %+v", s, c, want)
		}
	})
}

// What policies write is read in one pass; arguments are kept as they were written.
func TestUsualCallsAreScanned(t *testing.T) {
	want := Call{Name: "text_search", Args: `{"query_list":["a b"," c"],"x":" y "}`, Queries: []string{"a b", "c"}}
	c, ok := scanCall("\n{\"name\": \"text_search\", \"arguments\": {\"query_list\": [\"a b\", \" c\"], \"x\": \" y \"}}\n")
	if !ok || !reflect.DeepEqual(c, want) {
		t.Errorf("%v, %+v, want %+v", ok, c, want)
	}
}
