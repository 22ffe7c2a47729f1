// Package resource reads the resource usage of a process from Linux, and probes a disk.
package resource

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is the number of clock ticks of /proc/PID/stat in a second. It is 100 on every architecture
// that Go runs Linux on.
const ticks = 100

// CPU is processor time that a process has used since it began.
type CPU struct {
	User, System time.Duration
	// threads is the nanoseconds each living thread has run.
	threads map[string]int64
}

// ReadCPU reads the processor time of a process.
func ReadCPU(pid int) (CPU, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return CPU{}, err
	}
	// The fields are counted after the command, which may contain spaces and brackets.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 13 {
		return CPU{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		return CPU{}, fmt.Errorf("/proc/%d/stat: times %q and %q", pid, f[11], f[12])
	}
	c := CPU{User: time.Duration(user) * time.Second / ticks,
		System: time.Duration(system) * time.Second / ticks}
	c.threads = make(map[string]int64)
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return CPU{}, err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		first, _, _ := strings.Cut(string(b), " ")
		if n, err := strconv.ParseInt(first, 10, 64); err == nil {
			c.threads[name] = n
		}
	}
	return c, nil
}

// Since is the time used between before and c. The total is the scheduler's own, in nanoseconds,
// unless a thread ended between the two, whose time only the ticks of 10 ms still have; the
// division into user and system always comes from the ticks.
func (c CPU) Since(before CPU) (total, user, system time.Duration) {
	user, system = c.User-before.User, c.System-before.System
	var sum int64
	for name, ns := range before.threads {
		if _, ok := c.threads[name]; !ok {
			return user + system, user, system
		}
		sum -= ns
	}
	for _, ns := range c.threads {
		sum += ns
	}
	if sum <= 0 {
		return user + system, user, system
	}
	return time.Duration(sum), user, system
}

// Memory is the memory of a process, in bytes.
type Memory struct {
	Anon  int64 // anonymous: heap, stacks
	Total int64 // all that is resident, mapped files too
	Peak  int64 // the highest Total since the process began
}

// ReadMemory reads a process's resident memory.
func ReadMemory(pid int) (Memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		var to *int64
		switch name {
		case "RssAnon":
			to = &m.Anon
		case "VmRSS":
			to = &m.Total
		case "VmHWM":
			to = &m.Peak
		default:
			continue
		}
		f := strings.Fields(rest)
		if len(f) != 2 || f[1] != "kB" {
			return Memory{}, fmt.Errorf("/proc/%d/status: %q", pid, line)
		}
		n, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("/proc/%d/status: %q", pid, line)
		}
		*to = n << 10
	}
	return m, nil
}

// OwnCPU is the processor time this process has used.
func OwnCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// DirBytes is the disk space that the files under dir occupy.
func DirBytes(dir string) (int64, error) {
	var n int64
	seen := make(map[uint64]bool)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // removed while we walked
			}
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			if err == unix.ENOENT {
				return nil
			}
			return fmt.Errorf("stat %s: %w", path, err)
		}
		if !seen[st.Ino] {
			seen[st.Ino] = true
			n += st.Blocks * 512
		}
		return nil
	})
	return n, err
}
