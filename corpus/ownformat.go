package corpus

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
)

// find gives the format by its name: one of ours, one of the recipe's mappings,
// or map, whose mapping comes from flags.
func (o *PrepOptions) find(own map[string]recipe.Mapping) (Format, error) {
	if err := checkOwn(own); err != nil {
		return Format{}, err
	}
	m, mine := own[o.Format]
	if o.Format == mapFormat {
		var err error
		if m, err = loadMapping(o.MapFile, o.Map, o.Keep); err != nil {
			return Format{}, err
		}
	} else if len(o.Map)+len(o.Keep) > 0 || o.MapFile != "" {
		return Format{}, fail.New(fail.Usage, "prep", "", "--map, --map-file and --keep need --format %s", mapFormat)
	} else if !mine {
		f, err := FormatNamed(o.Format)
		var e *fail.Error
		if errors.As(err, &e) && len(own) > 0 {
			e.Hint += "; those of the recipe are " + strings.Join(slices.Sorted(maps.Keys(own)), ", ")
		}
		return f, err
	}
	o.mapping = &m
	return ownFormat(o.Format, m), nil
}

// checkOwn refuses mappings that would hide a format of ours.
func checkOwn(own map[string]recipe.Mapping) error {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if _, err := FormatNamed(name); err == nil || name == mapFormat {
			e := fail.New(fail.Usage, "prep", "", "mappings.%s: the format %s is there already", name, name)
			e.Hint = "give the mapping another name"
			return e
		}
	}
	return nil
}

// ownFormat is the format that a user's mapping makes.
func ownFormat(name string, m recipe.Mapping) Format {
	must := slices.Concat(m.Question, m.Answers)
	may := slices.Concat(m.ID, m.Options, m.Candidates, m.Images, m.Split, m.Category, m.DataSource, m.Ability, m.Meta, slices.Sorted(maps.Keys(m.Keep)))
	fields := strings.Join(must, ", ")
	if len(may) > 0 {
		fields += "; " + strings.Join(unique(may), ", ")
	}
	return mapped(Format{Name: name, Doc: pick(m.Doc, "a table by a mapping"), Fields: fields, From: pick(m.From, "the recipe does not say"),
		Split: pick(m.SplitIs, "train"), DataSource: pick(m.DataSourceIs, name)}, mapping{Mapping: m})
}

// listOwn writes the recipe's formats into the table of formats.
func listOwn(w io.Writer, own map[string]recipe.Mapping) error {
	if err := checkOwn(own); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		ownFormat(name, own[name]).list(w)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\n", mapFormat, Questions, "any table: Parquet, Arrow, CSV, JSON lines, a JSON list; columns by --map or --map-file")
	return nil
}
