package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	"searchloop/internal/manifest"
)

const (
	maxReasons = 8  // changed parameters named
	maxShown   = 40 // characters of a value shown
)

// difference says, in words, what of an older manifest is not what is asked now.
func (d *Dataset) difference(old *manifest.Manifest) []string {
	var why []string
	if old.Schema != d.spec.Schema {
		why = append(why, fmt.Sprintf("schema changed: %s → %s", old.Schema, d.spec.Schema))
	} else if old.Version != d.spec.Version {
		why = append(why, fmt.Sprintf("schema version changed: %d → %d", old.Version, d.spec.Version))
	}
	before := map[string]string{}
	for _, in := range old.Inputs {
		before[in.Name] = in.SHA256
	}
	for _, in := range d.inputs {
		switch sum, ok := before[in.Name]; {
		case !ok:
			why = append(why, "input "+in.Name+" is new")
		case sum != in.SHA256:
			why = append(why, "input "+in.Name+" changed")
		}
		delete(before, in.Name)
	}
	for _, in := range old.Inputs {
		if _, ok := before[in.Name]; ok {
			why = append(why, "input "+in.Name+" is gone")
		}
	}
	if changed := diffJSON(old.Params, d.params); len(changed) > 0 {
		if n := len(changed); n > maxReasons {
			changed = append(changed[:maxReasons], fmt.Sprintf("and %d more", n-maxReasons))
		}
		why = append(why, "params changed: "+strings.Join(changed, ", "))
	}
	if len(why) == 0 {
		why = []string{"the form of the parts changed"}
	}
	return why
}

func join(why []string) string { return strings.Join(why, "; ") }

// diffJSON lists the dotted paths at which two JSON values differ, with both values.
func diffJSON(a, b json.RawMessage) []string {
	left, right := map[string]string{}, map[string]string{}
	flatten("", decode(a), left)
	flatten("", decode(b), right)
	var list []string
	for path, was := range left {
		switch is, ok := right[path]; {
		case !ok:
			list = append(list, fmt.Sprintf("%s (%s → gone)", path, short(was)))
		case is != was:
			list = append(list, fmt.Sprintf("%s (%s → %s)", path, short(was), short(is)))
		}
	}
	for path, is := range right {
		if _, ok := left[path]; !ok {
			list = append(list, fmt.Sprintf("%s (new: %s)", path, short(is)))
		}
	}
	sort.Strings(list)
	return list
}

func decode(v json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var tree any
	if d.Decode(&tree) != nil {
		return nil
	}
	return tree
}

// flatten writes the leaves of a JSON tree under their dotted paths.
func flatten(path string, v any, to map[string]string) {
	at := func(key string) string {
		if path == "" {
			return key
		}
		return path + "." + key
	}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			flatten(at(k), x, to)
		}
	case []any:
		for i, x := range v {
			flatten(at(fmt.Sprint(i)), x, to)
		}
	case nil:
		if path != "" {
			to[path] = "null"
		}
	default:
		text, _ := json.Marshal(v)
		if path == "" {
			path = "value"
		}
		to[path] = string(text)
	}
}

func short(s string) string {
	if r := []rune(s); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return s
}
