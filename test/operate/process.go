package operate

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// statusField returns a size in KiB from the kernel's status of a process.
func statusField(t testing.TB, pid int, name string) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s of %d", name, pid)
	return 0
}
