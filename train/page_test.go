package train

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// docs/checkpoint.md names every field of the files and every reason of a refusal.
func TestPageIsComplete(t *testing.T) {
	text, err := os.ReadFile("../docs/checkpoint.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(text), "\n", " ")
	keys := func(v reflect.Type) {
		for i := range v.NumField() {
			f := v.Field(i)
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.IsExported() && key != "" && !strings.Contains(page, "`"+key+"`") && !strings.Contains(page, "`_"+key[strings.LastIndex(key, "_")+1:]+"`") {
				t.Errorf("%s.%s is not on the page", v.Name(), key)
			}
		}
	}
	for _, v := range []any{Line{}, Update{}, Corrected{}, Mismatch{}, Cursor{}, Meta{}, Stats{}} {
		keys(reflect.TypeOf(v))
	}
	for _, reason := range []string{NoTokens, LengthsDiffer, BadToken, NothingTrained, FirstTrained, VisionTrained, PaddingTrained, NoMode, BadMode, NoLogprobs,
		RawMode, BadLogprob, BadSampling, Truncation, BadImages, NoImage, TooLong, NoJudgement, BadReward, NoGroup, Duplicate, BadStatus, NotRendered} {
		if !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("reason %q is not on the page", reason)
		}
	}
}
