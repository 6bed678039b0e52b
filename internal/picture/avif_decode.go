//go:build nodynamic

package picture

import (
	"bytes"
	"image"

	"github.com/gen2brain/avif"
)

func decodeAVIF(data []byte) (image.Image, error) { return avif.Decode(bytes.NewReader(data)) }
