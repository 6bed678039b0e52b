package qwenvl

import "searchloop/internal/fail"

// Positions are the M-RoPE positions (time, height, width) of one sequence that
// starts at 0, and the position of the token that would follow. Text counts up;
// an image of grid (t,h,w) after merging stands at the current position plus its
// frame, row and column, and moves it on by the greatest of its extents. grids
// are in patches, one for each run of image pads, in order.
//
// A run that is not as long as its grid says, an image without a grid and a grid
// without an image are errors (fail.BadInput).
func Positions(tokens []int32, grids [][3]int32, cfg Config) ([3][]int32, int32, error) {
	var pos [3][]int32
	all := make([]int32, 3*len(tokens))
	for a := range pos {
		pos[a] = all[a*len(tokens) : (a+1)*len(tokens)]
	}
	cur, image := int32(0), 0
	for i := 0; i < len(tokens); {
		if !cfg.HasVision() || tokens[i] != cfg.ImagePadID {
			pos[0][i], pos[1][i], pos[2][i] = cur, cur, cur
			cur++
			i++
			continue
		}
		n := 0
		for i+n < len(tokens) && tokens[i+n] == cfg.ImagePadID {
			n++
		}
		if image == len(grids) {
			return pos, 0, fail.New(fail.BadInput, "positions", "", "image tokens at %d, but only %d images", i, len(grids))
		}
		t, h, w, err := cfg.tokenGrid(grids[image])
		if err != nil {
			return pos, 0, err
		}
		if t*h*w != n {
			return pos, 0, fail.New(fail.BadInput, "positions", "", "image %d has %d image tokens at %d, its grid %v needs %d", image, n, i, grids[image], t*h*w)
		}
		for k := range n {
			pos[0][i+k] = cur + int32(k/(h*w))
			pos[1][i+k] = cur + int32(k/w%h)
			pos[2][i+k] = cur + int32(k%w)
		}
		cur += int32(max(t, h, w))
		i += n
		image++
	}
	if image != len(grids) {
		return pos, 0, fail.New(fail.BadInput, "positions", "", "%d images, but image tokens for %d", len(grids), image)
	}
	return pos, cur, nil
}

// tokenGrid is the grid after merging; its product is the number of image tokens.
func (c *Config) tokenGrid(g [3]int32) (t, h, w int, err error) {
	m := c.MergeSize
	t, h, w = int(g[0]), int(g[1]), int(g[2])
	if m == 0 || t < 1 || h < 1 || w < 1 || t > maxDim || h > maxDim || w > maxDim || h%m != 0 || w%m != 0 {
		return 0, 0, 0, fail.New(fail.BadInput, "image grid", "", "grid %v is not a positive multiple of the merge size %d", g, m)
	}
	return t, h / m, w / m, nil
}

// axes says which of the three positions turns each frequency: height at 1, 4,
// 7, …, width at 2, 5, 8, …, as many as the section says, time at the others. In
// Qwen2.5-VL they follow each other in three chunks.
func (c *Config) axes() []uint8 {
	axis := make([]uint8, c.HeadDim/2)
	if s := c.MRopeSection; c.Family == Qwen2 && s != [3]int{} {
		for j := s[0]; j < len(axis); j++ {
			if axis[j] = 1; j >= s[0]+s[1] {
				axis[j] = 2
			}
		}
		return axis
	}
	for a := 1; a <= 2; a++ {
		for j := a; j < min(3*c.MRopeSection[a], len(axis)); j += 3 {
			axis[j] = uint8(a)
		}
	}
	return axis
}
