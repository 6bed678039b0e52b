package retrieve

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"searchloop/internal/picture"
)

// An index whose encoder reads images takes them as queries, among texts; others
// answer as they do to anything that is no text.
func TestImageQueries(t *testing.T) {
	png, err := (&picture.Picture{W: 3, H: 2, Pix: make([]byte, 18)}).PNG()
	if err != nil {
		t.Fatal(err)
	}
	bare := base64.StdEncoding.EncodeToString(png)
	body := func(items ...string) string { return `{"queries":[` + strings.Join(items, ",") + `],"topk":1}` }
	image := func(text string) string { return `{"image":"` + text + `"}` }
	s := server(fake{images: true}, Options{})
	code, got := post(t, s, body(`"a"`, image(bare), image("data:image/png;base64,"+bare)))
	want := `{"result":[[{"id":"0","contents":"\"a\"\n<b> & 0"}],[{"id":"0","contents":"\"3x2\"\n<b> & 0"}],[{"id":"0","contents":"\"3x2\"\n<b> & 0"}]]}`
	if code != 200 || got != want {
		t.Errorf("%d %s", code, got)
	}
	refused := func(s *Server, item, kind string) {
		t.Helper()
		code, got := post(t, s, body(`"a"`, item))
		var d struct{ Detail []detail }
		if err := json.Unmarshal([]byte(got), &d); err != nil || code != 422 || len(d.Detail) != 1 || d.Detail[0].Type != kind || d.Detail[0].Loc[2] != 1.0 {
			t.Errorf("%.40s: %d %s", item, code, got)
		}
	}
	refused(s, image("?"), "value_error")
	refused(s, image(bare[:40]), "value_error")
	refused(s, image("data:text/plain;base64,"+bare), "value_error")
	refused(s, `{"image":null}`, "string_type")
	refused(s, `{"image":3}`, "string_type")
	refused(s, `{}`, "string_type")
	refused(server(fake{}, Options{}), image(bare), "string_type")
}
