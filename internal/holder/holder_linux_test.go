package holder

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A process finds itself as the one that listens and holds a lock.
func TestHolder(t *testing.T) {
	self := fmt.Sprintf(", process %d", os.Getpid())
	for _, c := range []struct{ listen, ask string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"0.0.0.0:0", "127.0.0.1"}, {"[::]:0", "[::1]"},
		{"[::1]:0", "[::1]"}, {"127.0.0.1:0", "0.0.0.0"},
	} {
		l, err := net.Listen("tcp", c.listen)
		if err != nil {
			t.Logf("%s: %v", c.listen, err)
			continue
		}
		defer l.Close()
		address := fmt.Sprintf("%s:%d", c.ask, l.Addr().(*net.TCPAddr).Port)
		if got := OfAddress("tcp", address); !strings.HasSuffix(got, self) {
			t.Errorf("on %s: %q", address, got)
		}
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 30 { // connections that wait to be accepted, which the kernel lists in any order
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if got := OfAddress("unix", socket); !strings.HasSuffix(got, self) {
		t.Errorf("on the socket: %q", got)
	}
	for _, unused := range []string{"127.0.0.1:1", "nonsense", ""} {
		if got := OfAddress("tcp", unused); got != "" {
			t.Errorf("on %q: %q", unused, got)
		}
	}

	file := filepath.Join(t.TempDir(), "LOCK")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := OfLock(file); got != "" {
		t.Errorf("before the lock: %q", got)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if got := OfLock(file); !strings.HasSuffix(got, self) {
		t.Errorf("the lock: %q", got)
	}
}

// A socket that does not keep another from an address is not its holder, though it has the same
// port.
func TestHolderOfTwo(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after string // the networks and addresses of two sockets on one port
		ask, want     string // the address, and the one of them that holds it, "" for neither
	}{
		{"another family", "tcp4 0.0.0.0", "tcp6 [::1]", "[::1]", "[::1]"},
		{"another family, later", "tcp6 [::1]", "tcp4 0.0.0.0", "[::1]", "[::1]"},
		{"only another family", "tcp4 0.0.0.0", "", "[::1]", ""},
		{"another address", "tcp4 127.0.0.2", "tcp4 127.0.0.1", "127.0.0.1", "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			port, inodes := 0, map[string]string{}
			for _, at := range []string{c.before, c.after} {
				network, host, ok := strings.Cut(at, " ")
				if !ok {
					continue
				}
				l, err := net.Listen(network, fmt.Sprintf("%s:%d", host, port))
				if err != nil {
					t.Skip(err)
				}
				defer l.Close()
				port = l.Addr().(*net.TCPAddr).Port
				f, err := l.(*net.TCPListener).File()
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				info, err := f.Stat()
				if err != nil {
					t.Fatal(err)
				}
				_, inodes[host], _ = identityOf(info)
			}
			if got := tcpInode(fmt.Sprintf("%s:%d", c.ask, port)); got != inodes[c.want] {
				t.Errorf("the holder of %s is the socket %q of %v, want that of %q", c.ask, got,
					inodes, c.want)
			}
		})
	}
}

// Files of two file systems can have one inode number: the process that has locked one of them does
// not hold the other.
func TestHolderOfSameInode(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	var files []string
	for range 2 { // file systems in memory number their files alike
		dir := t.TempDir()
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		files = append(files, filepath.Join(dir, "LOCK"))
	}
	for _, file := range files {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if file == files[1] {
			f.Close()
		} else if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	if got := OfLock(files[0]); !strings.HasSuffix(got, fmt.Sprintf(", process %d", os.Getpid())) {
		t.Errorf("the locked file: %q", got)
	}
	if got := OfLock(files[1]); got != "" {
		t.Errorf("a file that is not locked: %q", got)
	}
}

// TestNameOfProcess: the name of a process reaches a terminal, and any user can choose it.
func TestNameOfProcess(t *testing.T) {
	const file = "/proc/self/comm"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Skip(err)
	}
	defer os.WriteFile(file, before, 0)
	if err := os.WriteFile(file, []byte("a\x1b]0;x\a\nb\xff"), 0); err != nil {
		t.Skip(err)
	}
	if got, want := describe(os.Getpid()),
		fmt.Sprintf("a?]0;x??b?, process %d", os.Getpid()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
