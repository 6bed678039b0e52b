package retry

import (
	"net/http"
	"strconv"
	"time"
)

// After is what a response's Retry-After asks for, in either of its forms
// (RFC 9110, section 10.2.3); 0 for nothing.
func After(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s >= 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}
