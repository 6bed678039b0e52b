package gemm

import "searchloop/internal/par"

func mul(c, a, b matrix, m, n, k int, acc bool) {
	par.For(m, max(1, 1<<18/max(1, n*k)), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			for j := range n {
				var total float32
				if acc {
					total = c.data[i*c.row+j]
				}
				for k0 := 0; k0 < k; k0 += BlockK {
					var s float32
					for p := k0; p < min(k, k0+BlockK); p++ {
						s += a.data[i*a.row+p*a.col] * b.data[p*b.row+j*b.col]
					}
					total += s
				}
				c.data[i*c.row+j] = total
			}
		}
	})
}
