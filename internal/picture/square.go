package picture

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"

	"searchloop/internal/fail"
)

// Square says how an encoder of whole images wants them: the shorter edge resized
// to Side, the middle cut out, each channel normalised.
type Square struct {
	Side      int
	Mean, Std [3]float32
}

// LoadSquare reads dir/preprocessor_config.json as Jina-CLIP's image processor
// does. Another way of resizing than the one above is a BadInput error.
func LoadSquare(dir string) (Square, error) {
	const op = "read image settings"
	path := filepath.Join(dir, "preprocessor_config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return Square{}, fail.WithHint(fail.Wrap(fail.BadInput, op, path, err), "the folder of an encoder for images must hold it")
	}
	// What the published implementation takes for keys that are not there.
	c := struct {
		Size          json.RawMessage `json:"size"`
		Mean, Std     []float32
		Mode          string `json:"resize_mode"`
		Interpolation string `json:"interpolation"`
	}{json.RawMessage("224"), []float32{0.48145466, 0.4578275, 0.40821073}, []float32{0.26862954, 0.26130258, 0.27577711}, "shortest", "bicubic"}
	if err := json.Unmarshal(data, &c); err != nil {
		return Square{}, fail.Wrap(fail.BadInput, op, path, err)
	}
	var s Square
	var sides []int
	if json.Unmarshal(c.Size, &s.Side) != nil && json.Unmarshal(c.Size, &sides) == nil && len(sides) == 2 && sides[0] == sides[1] {
		s.Side = sides[0]
	}
	copy(s.Mean[:], c.Mean)
	copy(s.Std[:], c.Std)
	switch {
	case s.Side < 1 || s.Side > 1<<12:
		err = errors.New("size is not one number of pixels within reason")
	case len(c.Mean) != 3 || len(c.Std) != 3 || s.Std[0] == 0 || s.Std[1] == 0 || s.Std[2] == 0:
		err = errors.New("mean and std must hold three numbers, and no std of 0")
	case c.Mode != "shortest" || c.Interpolation != "bicubic":
		err = errors.New("only resize_mode shortest and interpolation bicubic are known")
	}
	return s, fail.Wrap(fail.BadInput, op, path, err)
}

// Cut resizes p so that its shorter edge is Side and cuts out the middle square. A
// picture with one side more than 200 times the other is a BadInput error.
func (s Square) Cut(p *Picture) (*Picture, error) {
	if err := checkAspect(p.H, p.W); err != nil {
		return nil, err
	}
	h, w := s.Side, s.Side*p.W/p.H
	if p.W < p.H {
		h, w = s.Side*p.H/p.W, s.Side
	}
	p = p.Resize(h, w)
	// Halves go to the even number, as in the reference.
	top, left := int(math.RoundToEven(float64(h-s.Side)/2)), int(math.RoundToEven(float64(w-s.Side)/2))
	out := &Picture{W: s.Side, H: s.Side, Pix: make([]uint8, 0, 3*s.Side*s.Side)}
	for y := top; y < top+s.Side; y++ {
		out.Pix = append(out.Pix, p.Pix[3*(y*w+left):3*(y*w+left+s.Side)]...)
	}
	return out, nil
}

// Patches cuts out p's square, normalises it and takes it apart into patches of
// size pixels an edge, row by row; what is left over at the right and the bottom
// is dropped. A patch is 3·size² numbers by channel, row and column.
func (s Square) Patches(p *Picture, size int) ([]float32, error) {
	p, err := s.Cut(p)
	if err != nil {
		return nil, err
	}
	levels := levelsOf(s.Mean, s.Std)
	n := s.Side / size
	out := make([]float32, 0, n*n*3*size*size)
	for patch := range n * n {
		y0, x0 := patch/n*size, patch%n*size
		for c := range 3 {
			for y := y0; y < y0+size; y++ {
				row := p.Pix[3*(y*s.Side+x0)+c:]
				for x := range size {
					out = append(out, levels[c][row[3*x]])
				}
			}
		}
	}
	return out, nil
}
