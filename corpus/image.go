package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"image"

	_ "image/gif"  // image.DecodeConfig knows GIF,
	_ "image/jpeg" // JPEG,
	_ "image/png"  // PNG,

	_ "golang.org/x/image/bmp"  // BMP
	_ "golang.org/x/image/webp" // and WebP.
)

// maxImagePixels bounds an image's area. The largest photographs of the
// supported data sets have a tenth of it; a header that claims more is a bomb.
const maxImagePixels = 200 << 20

var imageKinds = []struct{ magic, ext string }{
	{"\xff\xd8\xff", ".jpg"},
	{"\x89PNG\r\n\x1a\n", ".png"},
	{"GIF87a", ".gif"},
	{"GIF89a", ".gif"},
	{"RIFF????WEBP", ".webp"},
	{"BM", ".bmp"},
}

// imageExt is the extension that belongs to the first bytes of data, "" when
// they are of no known image format.
func imageExt(data []byte) string {
kinds:
	for _, k := range imageKinds {
		if len(data) < len(k.magic) {
			continue
		}
		for i, c := range []byte(k.magic) {
			if c != '?' && data[i] != c {
				continue kinds
			}
		}
		return k.ext
	}
	return ""
}

// CheckImage says what is wrong with an encoded image as far as its header
// tells: unknown format, unreadable header, no area, an area beyond reason. It
// decodes no pixels.
func CheckImage(data []byte) (err error) {
	if len(data) == 0 {
		return errors.New("the image is empty")
	}
	ext := imageExt(data)
	if ext == "" {
		return fmt.Errorf("neither JPEG, PNG, GIF, WebP nor BMP: it begins with %q", data[:min(len(data), 12)])
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the image header is damaged: %v", r)
		}
	}()
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case err != nil:
		return fmt.Errorf("the image header is damaged: %w", err)
	case c.Width <= 0 || c.Height <= 0:
		return fmt.Errorf("the image has no area: %d x %d", c.Width, c.Height)
	case int64(c.Width)*int64(c.Height) > maxImagePixels:
		return fmt.Errorf("the image claims %d x %d pixels", c.Width, c.Height)
	}
	return nil
}
