package judge

import "math"

// Table counts two judges' verdicts on the same rows: Table[a][b] with 1 for
// correct and 0 for incorrect. Rows without a verdict of both are in no cell.
type Table [2][2]int

// Add counts one row.
func (t *Table) Add(a, b bool) {
	i, j := 0, 0
	if a {
		i = 1
	}
	if b {
		j = 1
	}
	t[i][j]++
}

// Kappa is how much more the two agree than they would by chance: 1 always, 0 as
// chance has it (Cohen 1960). NaN when nothing was counted, or when chance alone
// would have them always agree.
func (t Table) Kappa() float64 {
	n := float64(t[0][0] + t[0][1] + t[1][0] + t[1][1])
	agree := float64(t[0][0]+t[1][1]) / n
	chance := (float64(t[0][0]+t[0][1])*float64(t[0][0]+t[1][0]) + float64(t[1][0]+t[1][1])*float64(t[0][1]+t[1][1])) / (n * n)
	if n == 0 || chance == 1 {
		return math.NaN()
	}
	return (agree - chance) / (1 - chance)
}
