package main

import "unsafe"

// read loads x, whose length is a multiple of 64, and asks for what lies ahead bytes on; 0: does not.
func read(x []float32, ahead int) {
	readLines(unsafe.Pointer(&x[0]), uintptr(4*len(x)), uintptr(ahead))
}

//go:noescape
func readLines(p unsafe.Pointer, n, ahead uintptr)
