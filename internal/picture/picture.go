// Package picture decodes photographs and drawings to plain RGB and cuts them
// into the patches that Qwen's vision towers read.
//
// In go the bytes of a JPEG, PNG, GIF (first frame), WebP, BMP or AVIF file; out comes
// RGB with transparency laid on white and the EXIF orientation applied. Sizes are
// read from the header and refused before anything large is allocated. The
// package does not fetch, cache or store images.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http"

	"golang.org/x/image/bmp"
	"golang.org/x/image/webp"

	"searchloop/internal/fail"
)

// Limits on what Decode accepts: a decoded picture of MaxPixels needs some
// 300 MB while it is being decoded.
const (
	MaxBytes  = 64 << 20
	MaxPixels = 40_000_000
	MaxSide   = 30_000
)

// Causes of a Decode error, for errors.Is.
var (
	ErrFormat   = errors.New("not a JPEG, PNG, GIF, WebP, BMP or AVIF image")
	ErrTooLarge = errors.New("image too large")
	ErrCorrupt  = errors.New("damaged image")
)

// Picture is an image of W×H pixels, three bytes each, row by row.
type Picture struct {
	W, H int
	Pix  []uint8
}

type format struct {
	name   string
	magic  []string // '?' is any byte
	config func([]byte) (image.Config, error)
	decode func([]byte) (image.Image, error)
}

var formats = []format{
	{"jpeg", []string{"\xff\xd8\xff"},
		func(b []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(b)) },
		func(b []byte) (image.Image, error) { return jpeg.Decode(bytes.NewReader(b)) }},
	{"png", []string{"\x89PNG\r\n\x1a\n"},
		func(b []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(b)) },
		func(b []byte) (image.Image, error) { return png.Decode(bytes.NewReader(b)) }},
	{"gif", []string{"GIF87a", "GIF89a"},
		func(b []byte) (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(b)) },
		func(b []byte) (image.Image, error) { return gif.Decode(bytes.NewReader(b)) }},
	{"webp", []string{"RIFF????WEBP"},
		func(b []byte) (image.Config, error) { return webp.DecodeConfig(bytes.NewReader(b)) },
		func(b []byte) (image.Image, error) { return webp.Decode(bytes.NewReader(b)) }},
	{"bmp", []string{"BM"},
		func(b []byte) (image.Config, error) { return bmp.DecodeConfig(bytes.NewReader(b)) },
		func(b []byte) (image.Image, error) { return bmp.Decode(bytes.NewReader(b)) }},
	{"avif", []string{"????ftypavif", "????ftypavis"}, avifConfig, decodeAVIF},
}

// Format returns the name of data's format by its first bytes: jpeg, png, gif,
// webp, bmp, avif, or "" for anything else.
func Format(data []byte) string {
	if f := find(data); f != nil {
		return f.name
	}
	return ""
}

func find(data []byte) *format {
	for i := range formats {
		for _, m := range formats[i].magic {
			if len(data) < len(m) {
				continue
			}
			ok := true
			for j := range len(m) {
				ok = ok && (m[j] == '?' || m[j] == data[j])
			}
			if ok {
				return &formats[i]
			}
		}
	}
	return nil
}

// Decode returns the picture in data. Errors are of kind BadInput and wrap
// ErrFormat, ErrTooLarge or ErrCorrupt. Damaged data never panics.
func Decode(data []byte) (p *Picture, err error) {
	bad := func(cause error, why string, args ...any) error {
		return &fail.Error{Kind: fail.BadInput, Op: "decode image", Err: fmt.Errorf("%w: %s", cause, fmt.Sprintf(why, args...))}
	}
	f := find(data)
	switch {
	case len(data) == 0:
		return nil, bad(ErrFormat, "it is empty")
	case f == nil:
		return nil, bad(ErrFormat, "it looks like %s", http.DetectContentType(data))
	case len(data) > MaxBytes:
		return nil, bad(ErrTooLarge, "%d bytes, at most %d", len(data), MaxBytes)
	}
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, bad(ErrCorrupt, "%s decoder: %v", f.name, r)
		}
	}()
	c, err := f.config(data)
	if err != nil {
		return nil, bad(ErrCorrupt, "%v", err)
	}
	switch {
	case c.Width <= 0 || c.Height <= 0:
		return nil, bad(ErrCorrupt, "it has %d×%d pixels", c.Width, c.Height)
	case c.Width > MaxSide || c.Height > MaxSide || c.Width*c.Height > MaxPixels:
		return nil, bad(ErrTooLarge, "%d×%d pixels, at most %d in all and %d a side", c.Width, c.Height, MaxPixels, MaxSide)
	}
	m, err := f.decode(data)
	if err != nil {
		return nil, bad(ErrCorrupt, "%v", err)
	}
	p = flatten(m, f.name, c.Width, c.Height)
	return p.orient(orientation(f.name, data)), nil
}

// Size returns the format and the stored size of the picture in data as its
// header tells; no pixel is decoded, nothing large allocated.
func Size(data []byte) (format string, w, h int, err error) {
	f := find(data)
	if f == nil {
		return "", 0, 0, &fail.Error{Kind: fail.BadInput, Op: "read image header", Err: ErrFormat}
	}
	defer func() {
		if r := recover(); r != nil {
			err = &fail.Error{Kind: fail.BadInput, Op: "read image header", Err: fmt.Errorf("%w: %v", ErrCorrupt, r)}
		}
	}()
	c, err := f.config(data)
	if err != nil {
		return f.name, 0, 0, &fail.Error{Kind: fail.BadInput, Op: "read image header", Err: fmt.Errorf("%w: %w", ErrCorrupt, err)}
	}
	return f.name, c.Width, c.Height, nil
}

// RGBA returns the picture as an image of the standard library (a copy).
func (p *Picture) RGBA() *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, p.W, p.H))
	for i, j := 0, 0; i < len(p.Pix); i, j = i+3, j+4 {
		m.Pix[j], m.Pix[j+1], m.Pix[j+2], m.Pix[j+3] = p.Pix[i], p.Pix[i+1], p.Pix[i+2], 0xff
	}
	return m
}

// PNG encodes the picture; equal pictures give equal bytes.
func (p *Picture) PNG() ([]byte, error) {
	var b bytes.Buffer
	err := png.Encode(&b, p.RGBA())
	return b.Bytes(), fail.Wrap(fail.Bug, "encode PNG", "", err)
}

// JPEG encodes the picture with a quality of 1 to 100; equal pictures give equal bytes.
func (p *Picture) JPEG(quality int) ([]byte, error) {
	var b bytes.Buffer
	err := jpeg.Encode(&b, p.RGBA(), &jpeg.Options{Quality: quality})
	return b.Bytes(), fail.Wrap(fail.Bug, "encode JPEG", "", err)
}
