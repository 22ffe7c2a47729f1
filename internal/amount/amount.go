// Package amount returns numbers as short texts for people: bytes, durations, rates, shares.
package amount

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

// Count returns a number with a noun, in the plural unless the number is 1.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Bytes returns a number of bytes in powers of 1024.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/(1<<10), 0
	for ; v >= 1<<10; u++ {
		v /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", v, units[u])
}

// Age returns a duration in whole seconds, minutes, hours or days.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// Seconds returns a number of seconds in s, ms or µs, with at most three digits.
func Seconds(s float64) string {
	for _, u := range []struct {
		least float64
		name  string
	}{{1, "s"}, {1e-3, "ms"}, {0, "µs"}} {
		if s >= u.least {
			v := s / cmp.Or(u.least, 1e-6)
			if v < 9.95 {
				return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + u.name
			}
			return fmt.Sprintf("%.0f%s", v, u.name)
		}
	}
	return "0s"
}

// Rate returns a number per second with at most four digits, in thousands (k) or millions (M) if it
// is large.
func Rate(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.95:
		return fmt.Sprintf("%.1f", v)
	case v < 9999.5:
		return fmt.Sprintf("%.0f", v)
	case v < 999.5e3:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.1fM", v/1e6)
}

// Percent returns a share of a whole, "-" if the whole is not known.
func Percent(part, whole float64) string {
	if whole <= 0 || math.IsNaN(part) {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*part/whole)
}
