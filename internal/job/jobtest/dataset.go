// Package jobtest makes datasets for the tests of stages.
package jobtest

import (
	"testing"

	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/table"
)

// Dataset writes rows as a finished Parquet dataset in dir, and gives dir.
func Dataset[T any](t testing.TB, dir, schema string, version int, rows ...T) string {
	t.Helper()
	d, err := job.Testing(t).Dataset(job.Spec{Dir: dir, Schema: schema, Version: version, Ext: "parquet"})
	if err == nil {
		err = d.Each(func(sh *job.Shard) error {
			to, err := sh.Part()
			if err != nil {
				return err
			}
			w := table.NewWriter[T](to)
			if err := w.Write(rows...); err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
			return sh.Commit(w.Rows(), manifest.Counts{})
		})
	}
	if err == nil {
		err = d.Seal(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
