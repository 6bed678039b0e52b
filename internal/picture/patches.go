package picture

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"

	"searchloop/internal/fail"
)

// Processor says how a model wants its pictures: preprocessor_config.json.
type Processor struct {
	PatchSize     int // pixels of a patch's side
	MergeSize     int // patches of a merged token's side
	TemporalPatch int // frames of a patch; a still is each of them
	MinPixels     int // area bounds after resizing
	MaxPixels     int
	Mean, Std     [3]float32
}

// LoadProcessor reads dir/preprocessor_config.json. A folder without one is a
// BadInput error that wraps fs.ErrNotExist: the model reads no pictures.
func LoadProcessor(dir string) (Processor, error) {
	const op = "read image settings"
	path := filepath.Join(dir, "preprocessor_config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return Processor{}, fail.Wrap(fail.BadInput, op, path, err)
	}
	c := struct {
		Patch    int       `json:"patch_size"`
		Merge    int       `json:"merge_size"`
		Temporal int       `json:"temporal_patch_size"`
		Min      int       `json:"min_pixels"`
		Max      int       `json:"max_pixels"`
		Mean     []float32 `json:"image_mean"`
		Std      []float32 `json:"image_std"`
		Size     struct {
			Shortest int `json:"shortest_edge"` // areas, for all their names
			Longest  int `json:"longest_edge"`
			Min      int `json:"min_pixels"`
			Max      int `json:"max_pixels"`
		} `json:"size"`
	}{Patch: 16, Merge: 2, Temporal: 2, Mean: []float32{.5, .5, .5}, Std: []float32{.5, .5, .5}}
	if err := json.Unmarshal(data, &c); err != nil {
		return Processor{}, fail.Wrap(fail.BadInput, op, path, err)
	}
	first := func(values ...int) int {
		for _, v := range values {
			if v != 0 {
				return v
			}
		}
		return 0
	}
	p := Processor{PatchSize: c.Patch, MergeSize: c.Merge, TemporalPatch: c.Temporal,
		MinPixels: first(c.Min, c.Size.Min, c.Size.Shortest, 65536), MaxPixels: first(c.Max, c.Size.Max, c.Size.Longest, 16777216)}
	copy(p.Mean[:], c.Mean)
	copy(p.Std[:], c.Std)
	switch {
	case len(c.Mean) != 3 || len(c.Std) != 3 || p.Std[0] == 0 || p.Std[1] == 0 || p.Std[2] == 0:
		err = errors.New("image_mean and image_std must hold three numbers, and no std of 0")
	case p.PatchSize < 1 || p.PatchSize > 256 || p.MergeSize < 1 || p.MergeSize > 16 || p.TemporalPatch < 1 || p.TemporalPatch > 16:
		err = errors.New("patch_size, merge_size or temporal_patch_size is out of range")
	case p.MinPixels < 1 || p.MaxPixels < p.MinPixels || p.MaxPixels > 1<<30:
		err = errors.New("min_pixels and max_pixels are out of range")
	}
	return p, fail.Wrap(fail.BadInput, op, path, err)
}

// SmartResize returns the size, in multiples of factor, at which an image of h×w
// pixels is shown: the nearest (halves to even) whose area is within the bounds.
// A side more than 200 times the other is a BadInput error.
func SmartResize(h, w, factor, minPixels, maxPixels int) (int, int, error) {
	if h < 1 || w < 1 || factor < 1 {
		return 0, 0, fail.New(fail.BadInput, "resize image", "", "%d×%d pixels in steps of %d", h, w, factor)
	}
	if err := checkAspect(h, w); err != nil {
		return 0, 0, err
	}
	f, fh, fw := float64(factor), float64(h), float64(w)
	rh, rw := int(math.RoundToEven(fh/f))*factor, int(math.RoundToEven(fw/f))*factor
	switch area := rh * rw; {
	case area > maxPixels:
		beta := math.Sqrt(fh * fw / float64(maxPixels))
		rh, rw = int(math.Floor(fh/beta/f))*factor, int(math.Floor(fw/beta/f))*factor
	case area < minPixels:
		beta := math.Sqrt(float64(minPixels) / (fh * fw))
		rh, rw = int(math.Ceil(fh*beta/f))*factor, int(math.Ceil(fw*beta/f))*factor
	}
	return max(rh, factor), max(rw, factor), nil
}

// checkAspect refuses what would be a line of pixels after resizing.
func checkAspect(h, w int) error {
	if max(h, w) > 200*min(h, w) {
		return fail.New(fail.BadInput, "resize image", "", "%d×%d pixels: one side is more than 200 times the other", h, w)
	}
	return nil
}

// Grid returns the patch grid (1, rows, columns) of a picture of h×w pixels.
func (p Processor) Grid(h, w int) ([3]int32, error) {
	h, w, err := SmartResize(h, w, p.PatchSize*p.MergeSize, p.MinPixels, p.MaxPixels)
	return [3]int32{1, int32(h / p.PatchSize), int32(w / p.PatchSize)}, err
}

// Tokens is how many tokens a grid takes.
func (p Processor) Tokens(grid [3]int32) int {
	return int(grid[0]) * int(grid[1]) * int(grid[2]) / (p.MergeSize * p.MergeSize)
}

// Patches resizes the picture as the model wants and cuts it up; see PatchesFor.
func (p Processor) Patches(pic *Picture) (grid [3]int32, patches []float32, err error) {
	if grid, err = p.Grid(pic.H, pic.W); err != nil {
		return grid, nil, err
	}
	patches, err = p.PatchesFor(pic, grid)
	return grid, patches, err
}

// PatchesFor resizes the picture to exactly the given grid and returns its
// patches, t·h·w rows of 3·TemporalPatch·PatchSize² normalised values. Rows are
// in merge-block order (block row, block column, row and column within the
// block); values by channel, frame, row, column. A grid recorded at rollout time
// thus gives the trainer the very same input.
func (p Processor) PatchesFor(pic *Picture, grid [3]int32) ([]float32, error) {
	rows, cols, ps, ms := int(grid[1]), int(grid[2]), p.PatchSize, p.MergeSize
	if grid[0] != 1 || rows < 1 || cols < 1 || rows%ms != 0 || cols%ms != 0 || rows*cols > 1<<22 {
		return nil, fail.New(fail.BadInput, "cut image", "", "grid %v is not one of a still picture in blocks of %d×%d", grid, ms, ms)
	}
	pic = pic.Resize(rows*ps, cols*ps)
	levels := levelsOf(p.Mean, p.Std)
	out := make([]float32, 0, rows*cols*3*p.TemporalPatch*ps*ps)
	for block := range rows * cols / (ms * ms) {
		by, bx := block/(cols/ms)*ms, block%(cols/ms)*ms
		for in := range ms * ms {
			y0, x0 := (by+in/ms)*ps, (bx+in%ms)*ps
			for c := range 3 {
				start := len(out)
				for y := y0; y < y0+ps; y++ {
					src := pic.Pix[3*(y*pic.W+x0)+c:]
					for x := range ps {
						out = append(out, levels[c][src[3*x]])
					}
				}
				frame := out[start:]
				for range p.TemporalPatch - 1 {
					out = append(out, frame...)
				}
			}
		}
	}
	return out, nil
}

// levelsOf is what each of the 256 values of a channel becomes.
func levelsOf(mean, std [3]float32) (levels [3][256]float32) {
	for c := range levels {
		for v := range levels[c] {
			levels[c][v] = float32((float64(v)/255 - float64(mean[c])) / float64(std[c]))
		}
	}
	return levels
}
