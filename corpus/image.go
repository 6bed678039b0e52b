package corpus

import (
	"errors"
	"fmt"
	"strings"

	"searchloop/internal/picture"
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
	{"????ftypavif", ".avif"},
	{"????ftypavis", ".avif"},
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
func CheckImage(data []byte) error {
	if len(data) == 0 {
		return errors.New("the image is empty")
	}
	ext := imageExt(data)
	if ext == "" {
		return fmt.Errorf("neither JPEG, PNG, GIF, WebP, BMP nor AVIF: it begins with %q", data[:min(len(data), 12)])
	}
	_, w, h, err := picture.Size(data)
	switch {
	case err != nil:
		// The row is at fault, not its file: a text, not an error of package fail.
		return errors.New("the image header is damaged: " + strings.TrimPrefix(errors.Unwrap(err).Error(), picture.ErrCorrupt.Error()+": "))
	case w <= 0 || h <= 0:
		return fmt.Errorf("the image has no area: %d x %d", w, h)
	case int64(w)*int64(h) > maxImagePixels:
		return fmt.Errorf("the image claims %d x %d pixels", w, h)
	}
	return nil
}

// DecodeImage says what is wrong with an encoded image after decoding all of it.
// It is stricter than CheckImage: what a policy could not be shown is refused.
func DecodeImage(data []byte) error {
	if err := CheckImage(data); err != nil {
		return err
	}
	_, err := picture.Decode(data)
	return err
}
