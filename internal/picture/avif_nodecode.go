//go:build !nodynamic

package picture

import (
	"errors"
	"image"
)

func decodeAVIF([]byte) (image.Image, error) {
	return nil, errors.New("AVIF is not built in: build with make, or with -tags nodynamic")
}
