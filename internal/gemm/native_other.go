//go:build !amd64

package gemm

func native() []kernel { return nil }
