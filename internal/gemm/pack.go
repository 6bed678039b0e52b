package gemm

import "unsafe"

// packB copies terms [p, p+k) of cols columns of B from column j into dst as
// rows of width floats, zeros behind the last column.
func (kn *kernel) packB(dst []float32, b matrix, p, j, k, cols, width int) {
	dst = dst[:k*width]
	if b.col == 1 {
		if cols == width && kn.copyRows != nil {
			kn.copyRows(unsafe.Pointer(&dst[0]), unsafe.Pointer(&b.data[p*b.row+j]), uintptr(b.row)*4, k, width*4)
			return
		}
		for q := range k {
			row := dst[q*width : (q+1)*width]
			from := (p+q)*b.row + j
			n := copy(row, b.data[from:from+cols])
			clear(row[n:])
		}
		return
	}
	// B is transposed: a column is contiguous.
	done := 0
	if blocks, groups := k/8, cols/8; kn.transpose != nil && blocks > 0 && groups > 0 {
		done = groups * 8
		kn.transpose(unsafe.Pointer(&dst[0]), unsafe.Pointer(&b.data[j*b.col+p]), uintptr(width)*4, uintptr(b.col)*4, blocks, groups)
		if blocks*8 < k {
			for c := range done {
				column(dst, b.data[(j+c)*b.col+p:][:k], c, width, blocks*8)
			}
		}
	}
	for c := done; c < cols; c++ {
		column(dst, b.data[(j+c)*b.col+p:][:k], c, width, 0)
	}
	if cols < width {
		for q := range k {
			clear(dst[q*width+cols : (q+1)*width])
		}
	}
}

// column spreads the terms of one column from term from on.
func column(dst, col []float32, c, width, from int) {
	for q := from; q < len(col); q++ {
		dst[q*width+c] = col[q]
	}
}

// packA copies terms [p, p+k) of rows [i, i+maxRows), or as many as there are, of
// a transposed A into dst as rows of maxRows floats.
func (kn *kernel) packA(dst []float32, a matrix, p, i, k, m int) {
	if m-i >= maxRows && kn.copyRows != nil {
		kn.copyRows(unsafe.Pointer(&dst[0]), unsafe.Pointer(&a.data[p*a.col+i]), uintptr(a.col)*4, k, maxRows*4)
		return
	}
	rows := min(m-i, maxRows)
	for q := range k {
		copy(dst[q*maxRows:][:rows], a.data[(p+q)*a.col+i:][:rows])
	}
}
