package trajectory

import (
	"iter"

	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// Schemas of the datasets of rows and of judgements.
const (
	RolloutsSchema = "rollouts"
	JudgedSchema   = "judged"
	Version        = 1 // of both
)

// Rollouts streams the rows of a rollouts dataset, by id within each part.
func Rollouts(dir string) iter.Seq2[Row, error] { return read[Row](dir, RolloutsSchema) }

// Judgements streams the rows of a judged dataset, by id within each part.
func Judgements(dir string) iter.Seq2[Judged, error] { return read[Judged](dir, JudgedSchema) }

func read[T any](dir, schema string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		m, err := manifest.Open(dir)
		if err == nil {
			err = m.Require(dir, schema, Version)
		}
		if err != nil {
			yield(*new(T), err)
			return
		}
		table.ReadDataset[T](dir)(yield)
	}
}
