package recipe

import "fmt"

// Dollars is ", $x" for so many sampled tokens at a price a million, and nothing
// when the price is not known.
func Dollars(tokens int, price float64) string {
	if price <= 0 {
		return ""
	}
	return fmt.Sprintf(", $%.2f", float64(tokens)/1e6*price)
}
