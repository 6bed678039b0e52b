//go:build !linux

package main

func huge([]float32) {}
