//go:build !unix

package safetensors

import "os"

func mapFile(path string) (data []byte, release func() error, err error) {
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}
