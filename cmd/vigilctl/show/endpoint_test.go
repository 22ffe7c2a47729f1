package show

import "testing"

func TestDecimalSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 9: "9 B", 999: "999 B", 1000: "1.0 kB",
		1500: "1.5 kB", 20480: "20 kB", 999_999: "1000 kB", 2_147_483_648: "2.1 GB"} {
		if got := Size(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
