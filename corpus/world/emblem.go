package world

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
)

// Side is the width and height of every drawn image in pixels.
const Side = 64

var palette = map[string]color.RGBA{
	"red": {200, 30, 30, 255}, "green": {30, 150, 50, 255}, "blue": {30, 60, 200, 255}, "yellow": {235, 215, 40, 255},
	"purple": {130, 40, 160, 255}, "orange": {240, 130, 20, 255}, "white": {245, 245, 245, 255}, "black": {20, 20, 20, 255},
}

// Emblem draws a place's emblem as PNG: a field of its colour, a grey shape in the
// middle, and in it dots that no other place has in the same order.
func Emblem(p Place) []byte {
	img := image.NewRGBA(image.Rect(0, 0, Side, Side))
	ink := color.RGBA{128, 128, 128, 255}
	for y := range Side {
		for x := range Side {
			c := palette[p.Colour]
			if inShape(p.shape, x-Side/2, y-Side/2) {
				c = ink
			}
			img.SetRGBA(x, y, c)
		}
	}
	for i := range 16 { // four by four dots, four bits of the mark in each
		shade := uint8(p.mark>>(4*i)&15) * 17
		for d := range 4 {
			img.SetRGBA(Side/2-4+2*(i%4)+d%2, Side/2-4+2*(i/4)+d/2, color.RGBA{shade, shade, 255 - shade, 255})
		}
	}
	return encode(img)
}

func inShape(shape string, x, y int) bool {
	const r = 12
	ax, ay := max(x, -x), max(y, -y)
	switch shape {
	case "circle":
		return x*x+y*y < r*r
	case "square":
		return ax < r-2 && ay < r-2
	case "diamond":
		return ax+ay < r+4
	case "cross":
		return (ax < 5 && ay < r) || (ay < 5 && ax < r)
	case "stripe":
		return ay < 6
	case "triangle":
		return y > -r && y < r && 2*ax < y+r
	}
	return false
}

// Map draws a place's map as PNG: pale land and a few roads. It shows neither
// the emblem's colour nor its shape.
func Map(p Place) []byte {
	rng := rand.New(rand.NewPCG(p.mark, 2))
	img := image.NewRGBA(image.Rect(0, 0, Side, Side))
	for y := range Side {
		for x := range Side {
			img.SetRGBA(x, y, color.RGBA{200, 210, 190, 255})
		}
	}
	for range 5 {
		x, y := rng.IntN(Side), rng.IntN(Side)
		dx, dy := rng.IntN(3)-1, rng.IntN(3)-1
		for range Side {
			img.SetRGBA((x+Side)%Side, (y+Side)%Side, color.RGBA{110, 90, 70, 255})
			x, y = (x+dx+Side)%Side, (y+dy+Side)%Side
		}
	}
	return encode(img)
}

func encode(img image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err) // cannot happen: a bytes.Buffer takes everything
	}
	return b.Bytes()
}
