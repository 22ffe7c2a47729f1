package target

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Launcher starts processes from one thread that lives as long as this process, because both the
// parent-death signal and the processors a child may use belong to the thread that made it.
type Launcher struct {
	work chan func()
}

// NewLauncher makes a launcher whose children may use only the processors in cpus, a list like
// "0,2-3"; an empty list means all.
func NewLauncher(cpus string) (*Launcher, error) {
	set, err := parseCPUs(cpus)
	if err != nil {
		return nil, err
	}
	l := &Launcher{work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		if set == nil {
			ready <- nil
		} else {
			ready <- unix.SchedSetaffinity(0, set)
		}
		for f := range l.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("processors %s: %w", cpus, err)
	}
	return l, nil
}

func (l *Launcher) run(cmd *exec.Cmd) error {
	err := make(chan error)
	l.work <- func() { err <- cmd.Start() }
	return <-err
}

// Restrict limits this process to cpus, a list as in NewLauncher. It is called before any
// goroutine is started and works on every thread there is.
func Restrict(cpus string) error {
	set, err := parseCPUs(cpus)
	if err != nil || set == nil {
		return err
	}
	tasks, err := threads()
	if err != nil {
		return err
	}
	for _, tid := range tasks {
		if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("processors %s: %w", cpus, err)
		}
	}
	runtime.GOMAXPROCS(set.Count())
	return nil
}

func parseCPUs(list string) (*unix.CPUSet, error) {
	if list == "" {
		return nil, nil
	}
	set := new(unix.CPUSet)
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, ok := strings.Cut(part, "-")
		if !ok {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || a < 0 || b < a || b >= 1024 {
			return nil, fmt.Errorf("processor list %q: %q is not a number or a range", list, part)
		}
		for i := a; i <= b; i++ {
			set.Set(i)
		}
	}
	return set, nil
}
func threads() ([]int, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, tid)
		}
	}
	return out, nil
}
