package jsonscan

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzAppendText(f *testing.F) {
	f.Add("a\n\"\\<>&\u2028\xff\x00é")
	f.Fuzz(func(t *testing.T, s string) {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(s); err != nil {
			t.Fatal(err)
		}
		if got := string(AppendText([]byte("x"), s)); got+"\n" != "x"+want.String() {
			t.Errorf("%q, want %q", got, want.String())
		}
	})
}
