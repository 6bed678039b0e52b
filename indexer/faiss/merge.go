package faiss

import (
	"io"

	"searchloop/internal/fail"
)

// Merge joins the indices at paths, in this order, and writes the result. They
// must be of one kind and trained alike, as the shards of one dataset are; rows
// count on, ids of an id map stay.
func Merge(paths []string, to io.Writer) error {
	all, err := read(paths[0], false)
	if err != nil {
		return err
	}
	defer all.close()
	for _, p := range paths[1:] {
		if err := mergeOne(all, p); err != nil {
			return err
		}
	}
	return stream(all, to)
}

func mergeOne(all index, path string) error {
	x, err := read(path, false)
	if err != nil {
		return err
	}
	defer x.close()
	if err := all.merge(x); err != nil {
		return &fail.Error{Kind: fail.BadInput, Op: "merge index", Path: path, Err: err, Hint: "only indices of one kind that were trained together can be joined; HNSW graphs cannot"}
	}
	return nil
}
