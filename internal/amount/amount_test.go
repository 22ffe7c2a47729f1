package amount

import "testing"

func TestShortNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0µs", 0.0000004: "0.4µs", 0.00025: "250µs",
		0.0023: "2.3ms", 0.045: "45ms", 1: "1s", 7.25: "7.2s", 90: "90s"} {
		if got := Seconds(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 63.4: "63", 9999: "9999",
		123456: "123k", 2.5e6: "2.5M"} {
		if got := Rate(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB",
		1536: "1.5 KiB", 64 << 20: "64.0 MiB", 1 << 62: "4.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
