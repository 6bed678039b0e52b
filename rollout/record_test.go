package rollout

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"searchloop/rollout/trajectory"
)

// fill gives every field of a value, however deep, a value of its own.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString("<text> \"" + string(rune('à'+*n)) + "\"\n")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(-*n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(float32(1) / float32(*n)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic(v.Kind())
	}
}

// A record is written by hand; encoding/json must read in it what it reads in its own.
// A field that is added to a row or timing must not be forgotten here.
func TestRecordsAreWrittenWhole(t *testing.T) {
	var full, empty record
	n := 0
	fill(reflect.ValueOf(&full).Elem(), &n)
	small := record{Time: timing{Seconds: 1e-9, Policy: 123456789.25}}
	small.Row.Turns = []trajectory.Turn{{Role: "user"}, {Text: "half \xff", Images: []string{}}}
	small.Row.TokenIDs, small.Row.Logprobs = []int32{}, []float32{-1e-12, -3.4e38, 0}
	for _, r := range []*record{&full, &empty, &small} {
		got, err := r.append(nil)
		want, werr := json.Marshal(r)
		if err != nil || werr != nil {
			t.Fatal(err, werr)
		}
		var a, b record
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		if err := json.Unmarshal(want, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
	full.Row.Logprobs[1] = float32(math.Inf(-1))
	if _, err := full.append(nil); err == nil {
		t.Error("a log-prob that is no number was written")
	}
}
