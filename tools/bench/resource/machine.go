package resource

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Busy is the time that all processors of the machine together have spent on something since it
// began, in steps of 10 ms. Time that a hypervisor gave to other machines counts: it was not to be
// had here.
func Busy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return busy(line)
}

// busy reads the first line of /proc/stat: user nice system idle iowait irq softirq steal, and what
// guests used, which user and nice contain already.
func busy(line string) (time.Duration, error) {
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var sum int64
	for i, v := range f[1:9] {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %q", v)
		}
		if i != 3 && i != 4 { // idle, iowait
			sum += n
		}
	}
	return time.Duration(sum) * time.Second / ticks, nil
}
