//go:build !amd64

package dots

func native() []kernel { return nil }
