package tool

import (
	"encoding/json"
	"reflect"
	"testing"
)

const retrievedText = ` {"result": [[{"document": {"id": "7", "contents": "Vorna\nA \"town\" \u00e9.", "url": "http://x/", "title": "t", "text": "x", "image_id": "ab", "other": [1, {}]}, "score": 0.8}, {"score": -1e-2, "document": {}}], []], "more": null} `

func sameRetrieved(t *testing.T, body []byte) bool {
	got, ok := scanRetrieved(body)
	if !ok {
		return false
	}
	var want retrieved
	if err := json.Unmarshal(body, &want); err != nil || want.Result == nil {
		t.Fatalf("%q: was read, and is no response: %v", body, err)
	}
	if len(*got.Result)+len(*want.Result) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\n got %+v\nwant %+v", body, *got.Result, *want.Result)
	}
	return true
}

// What is read in one pass is what encoding/json reads.
func TestScanRetrieved(t *testing.T) {
	if !sameRetrieved(t, []byte(retrievedText)) {
		t.Error("not read in one pass")
	}
	for i := range retrievedText {
		sameRetrieved(t, []byte(retrievedText[:i]))
		for _, c := range []string{"x", `"`, "{", "]", ",", "1", "\\", "\xff", "null", "[]", "A"} {
			sameRetrieved(t, []byte(retrievedText[:i]+c+retrievedText[i:]))
		}
	}
	for _, text := range []string{`{"result":null}`, `{}`, `{"result":[[]],"result":[]}`, `{"result":[[{"document":{"id":"a","id":"b"}}]]}`, `{"result":[[{"document":{"id":7}}]]}`, `{"Result":[]}`} {
		if sameRetrieved(t, []byte(text)) {
			t.Errorf("was read in one pass: %s", text)
		}
	}
}

func FuzzScanRetrieved(f *testing.F) {
	f.Add([]byte(retrievedText))
	f.Fuzz(func(t *testing.T, body []byte) { sameRetrieved(t, body) })
}
