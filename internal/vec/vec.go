// Package vec holds the elementwise and reducing loops of the models: slices of
// float32 in, slices or one number out. It starts no goroutines and allocates
// nothing.
//
// Unless it says otherwise a function may be called with dst equal to one of
// its sources, but not with slices that overlap in part. All slices of a call
// must have the length of the first one; a longer source is an error of the
// caller and panics.
//
// Reductions add in one fixed order that depends on the length alone: lane i of
// 32 takes the elements i, i+32, …; the lanes are then added as a tree. AVX2 and
// AVX-512 agree to the bit; the generic code rounds products as well and agrees
// only closely.
package vec

import "fmt"

func same(name string, n, m int) {
	if n != m {
		panic(fmt.Sprintf("vec.%s: lengths %d and %d differ", name, n, m))
	}
}
