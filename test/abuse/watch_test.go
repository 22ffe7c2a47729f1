package abuse

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// watch measures how long something takes in this process and a server, without the time in which a
// thread of theirs could have run and had no processor: that depends on what else the machine does.
type watch struct {
	began  time.Time
	pids   []int
	queued []map[string]time.Duration // by thread
}

// measure starts a watch.
func measure(server int) watch {
	w := watch{began: time.Now(), pids: []int{os.Getpid(), server}}
	for _, pid := range w.pids {
		w.queued = append(w.queued, queued(pid))
	}
	return w
}

// read returns how long it took, and how long the thread of each process that waited longest for a
// processor did so.
func (w watch) read() (took, waited time.Duration) {
	all := time.Since(w.began)
	for i, pid := range w.pids {
		longest := time.Duration(0)
		for thread, d := range queued(pid) {
			longest = max(longest, d-w.queued[i][thread])
		}
		waited += longest
	}
	waited = min(waited, all)
	return all - waited, waited
}

// queued returns how long each thread of a process has waited for a processor so far, nothing where
// the kernel does not report it.
func queued(pid int) map[string]time.Duration {
	out := map[string]time.Duration{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, name := range files {
		b, _ := os.ReadFile(name) // of a thread that has ended
		if fields := strings.Fields(string(b)); len(fields) == 3 {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			out[name] = time.Duration(n)
		}
	}
	return out
}

// processor returns the time that a process has had a processor.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// After the name, which may contain any byte: utime and stime are the fields 14 and 15, in
	// hundredths of a second.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	var ticks time.Duration
	for _, s := range fields[11:13] {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}
