package retrieve

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"searchloop/indexer"
	"searchloop/indexer/faiss"
)

// request is the body of POST /retrieve.
type request struct {
	Queries      []indexer.Query
	TopK         int // 0 = the server's default
	ReturnScores bool
	Effort       faiss.Effort
}

// detail is one entry of the error list that FastAPI answers with: the clients
// of the supported systems were written against it.
type detail struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"`
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
	Ctx   map[string]any  `json:"ctx,omitempty"`
}

// limits of one request.
type limits struct {
	Body    int64
	Queries int
	TopK    int
	Image   func(data []byte) (indexer.Query, error) // nil: queries are texts
}

// parse reads a body. What is wrong is told as FastAPI (pydantic 2, lax mode)
// tells it, all faults at once; unknown fields are ignored.
func parse(body []byte, lim limits) (request, []detail) {
	var r request
	if len(bytes.TrimSpace(body)) == 0 {
		return r, []detail{{"missing", []any{"body"}, "Field required", json.RawMessage("null"), nil}}
	}
	fields, d := object(body)
	if d != nil {
		return r, []detail{*d}
	}
	var all []detail
	q, ok := fields["queries"]
	if !ok {
		all = append(all, detail{"missing", []any{"body", "queries"}, "Field required", compact(body), nil})
	} else {
		var bad []detail
		r.Queries, bad = queries(q, lim)
		all = append(all, bad...)
	}
	for _, f := range []struct {
		name string
		most int
		to   *int
	}{{"topk", lim.TopK, &r.TopK}, {"nprobe", mostEffort, &r.Effort.NProbe}, {"ef_search", mostEffort, &r.Effort.EfSearch}} {
		if v, ok := fields[f.name]; ok && !isNull(v) {
			n, bad := count(v, f.most)
			all = located(all, bad, f.name, v)
			*f.to = n
		}
	}
	if v, ok := fields["return_scores"]; ok {
		b, bad := boolean(v)
		all = located(all, bad, "return_scores", v)
		r.ReturnScores = b
	}
	return r, all
}

func located(all []detail, d *detail, field string, input json.RawMessage) []detail {
	if d == nil {
		return all
	}
	d.Loc, d.Input = []any{"body", field}, input
	return append(all, *d)
}

// object reads body as one JSON object with nothing after it.
func object(body []byte) (map[string]json.RawMessage, *detail) {
	dec := json.NewDecoder(bytes.NewReader(body))
	var whole json.RawMessage
	err := dec.Decode(&whole)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("extra data")
		}
	}
	if err != nil {
		at := dec.InputOffset()
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			at = syntax.Offset
		case errors.Is(err, io.ErrUnexpectedEOF):
			at = int64(len(body))
		}
		return nil, &detail{"json_invalid", []any{"body", at}, "JSON decode error", json.RawMessage("{}"), map[string]any{"error": err.Error()}}
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(whole, &fields) != nil || fields == nil {
		return nil, &detail{"model_attributes_type", []any{"body"}, "Input should be a valid dictionary or object to extract fields from", whole, nil}
	}
	return fields, nil
}

func queries(v json.RawMessage, lim limits) ([]indexer.Query, []detail) {
	var items []json.RawMessage
	if json.Unmarshal(v, &items) != nil || items == nil {
		return nil, []detail{{"list_type", []any{"body", "queries"}, "Input should be a valid list", v, nil}}
	}
	if len(items) > lim.Queries {
		return nil, []detail{{"too_long", []any{"body", "queries"}, fmt.Sprintf("List should have at most %d items after validation, not %d", lim.Queries, len(items)),
			json.RawMessage("null"), map[string]any{"field_type": "List", "max_length": lim.Queries, "actual_length": len(items)}}}
	}
	out := make([]indexer.Query, len(items))
	var bad []detail
	for i, item := range items {
		var picture struct {
			Image *string `json:"image"`
		}
		switch {
		case !isNull(item) && json.Unmarshal(item, &out[i].Text) == nil:
		case lim.Image != nil && json.Unmarshal(item, &picture) == nil && picture.Image != nil:
			q, err := imageQuery(*picture.Image, lim)
			if err != nil {
				bad = append(bad, detail{"value_error", []any{"body", "queries", i, "image"}, "Value error, " + err.Error(), json.RawMessage("null"), nil})
			}
			out[i] = q
		default:
			bad = append(bad, detail{"string_type", []any{"body", "queries", i}, "Input should be a valid string", item, nil})
		}
	}
	return out, bad
}

// imageQuery reads an image from base64, bare or as a data URI.
func imageQuery(text string, lim limits) (indexer.Query, error) {
	if head, rest, ok := strings.Cut(text, ","); ok && strings.HasPrefix(head, "data:image/") && strings.HasSuffix(head, ";base64") {
		text = rest
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return indexer.Query{}, errors.New("the image is not base64, bare or after data:image/…;base64,")
	}
	return lim.Image(data)
}

// mostEffort is the largest nprobe and ef_search of a request.
const mostEffort = 1 << 20

// count is an integer from 0 to most.
func count(v json.RawMessage, most int) (int, *detail) {
	n, bad := integer(v)
	switch {
	case bad == nil && n < 0:
		bad = &detail{Type: "greater_than_equal", Msg: "Input should be greater than or equal to 0", Ctx: map[string]any{"ge": 0}}
	case bad == nil && n > int64(most):
		bad = &detail{Type: "less_than_equal", Msg: fmt.Sprintf("Input should be less than or equal to %d", most), Ctx: map[string]any{"le": most}}
	}
	return int(n), bad
}

// integer takes what pydantic takes for an int: 3, 3.0, "3", true.
func integer(v json.RawMessage) (int64, *detail) {
	var x any
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	if err := d.Decode(&x); err != nil {
		return 0, &detail{Type: "int_type", Msg: "Input should be a valid integer"}
	}
	switch x := x.(type) {
	case bool:
		if x {
			return 1, nil
		}
		return 0, nil
	case json.Number:
		if n, err := strconv.ParseInt(x.String(), 10, 64); err == nil {
			return n, nil
		}
		f, err := x.Float64()
		switch {
		case err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53:
			return int64(f), nil
		case err == nil && f != math.Trunc(f):
			return 0, &detail{Type: "int_from_float", Msg: "Input should be a valid integer, got a number with a fractional part"}
		}
		return 0, &detail{Type: "int_parsing_size", Msg: "Unable to parse input string as an integer, exceeded maximum size"}
	case string:
		s := strings.TrimSuffix(strings.TrimSpace(x), ".0")
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
		return 0, &detail{Type: "int_parsing", Msg: "Input should be a valid integer, unable to parse string as an integer"}
	}
	return 0, &detail{Type: "int_type", Msg: "Input should be a valid integer"}
}

// boolean takes what pydantic takes for a bool: true, 0, 1, "yes", "off", …
func boolean(v json.RawMessage) (bool, *detail) {
	var x any
	if json.Unmarshal(v, &x) != nil {
		x = nil
	}
	switch x := x.(type) {
	case bool:
		return x, nil
	case float64:
		if x == 0 || x == 1 {
			return x == 1, nil
		}
		return false, &detail{Type: "bool_parsing", Msg: "Input should be a valid boolean, unable to interpret input"}
	case string:
		switch strings.ToLower(x) {
		case "1", "true", "t", "yes", "y", "on":
			return true, nil
		case "0", "false", "f", "no", "n", "off":
			return false, nil
		}
		return false, &detail{Type: "bool_parsing", Msg: "Input should be a valid boolean, unable to interpret input"}
	}
	return false, &detail{Type: "bool_type", Msg: "Input should be a valid boolean"}
}

func isNull(v json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(v), []byte("null")) }

// compact is body for an error's "input", left out when it is long.
func compact(body []byte) json.RawMessage {
	var b bytes.Buffer
	if len(body) > 4096 || json.Compact(&b, body) != nil {
		return json.RawMessage("null")
	}
	return b.Bytes()
}
