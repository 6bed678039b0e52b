package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"searchloop/indexer/flat"
	"searchloop/internal/atomicfile"
	"searchloop/internal/par"
)

const piece = 20_000 // rows made at a time

// vectors makes random unit vectors, in every format, and 256 queries.
func vectors(dir string, rows, dim int) (map[flat.Format]string, []float32, error) {
	paths := map[flat.Format]string{flat.Flat: filepath.Join(dir, "flat.index"), flat.FP16: filepath.Join(dir, "fp16.index"), flat.SQ8: filepath.Join(dir, "sq8.index")}
	queries := units(1<<32, 256, dim)
	var raw bytes.Buffer
	if err := binary.Write(&raw, binary.LittleEndian, queries); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "queries.f32"), raw.Bytes(), 0o644); err != nil {
		return nil, nil, err
	}
	h := flat.Header{Dim: dim, Rows: int64(rows)}
	if have, err := flat.Info(paths[flat.SQ8]); err == nil && have.Dim == dim && have.Rows == h.Rows { // the last to be written
		return paths, queries, nil
	}
	var ranges flat.Ranges
	for _, f := range []flat.Format{flat.Flat, flat.FP16, flat.SQ8} {
		if h.Format = f; f == flat.SQ8 {
			h.Trained = ranges.Trained(dim)
		}
		if err := writeFile(paths[f], h, &ranges); err != nil {
			return nil, nil, err
		}
	}
	return paths, queries, nil
}

func writeFile(path string, h flat.Header, ranges *flat.Ranges) error {
	file, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := h.Writer(file)
	if err != nil {
		return err
	}
	for at := 0; at < int(h.Rows); at += piece {
		v := units(uint64(at), min(piece, int(h.Rows)-at), h.Dim)
		if h.Format == flat.Flat {
			ranges.Add(v, h.Dim)
		}
		if err := w.Write(v); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return file.Commit()
}

// units is rows random vectors of length 1, the same for the same seed.
func units(seed uint64, rows, dim int) []float32 {
	v := make([]float32, rows*dim)
	par.Chunks(rows, 100, func(c, lo, hi int) {
		rng := rand.New(rand.NewPCG(seed, uint64(c)))
		for r := lo; r < hi; r++ {
			row := v[r*dim : (r+1)*dim]
			var sum float64
			for i := range row {
				row[i] = float32(rng.NormFloat64())
				sum += float64(row[i]) * float64(row[i])
			}
			for i := range row {
				row[i] /= float32(math.Sqrt(sum))
			}
		}
	})
	return v
}
