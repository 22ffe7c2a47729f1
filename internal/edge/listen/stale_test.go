//go:build unix

package listen

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSocketOfRunningProgram: only a socket without a listener is removed, not one whose listener
// is slow or of another kind.
func TestSocketOfRunningProgram(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	sock := func(name string) int {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(fd) })
		if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path(name)}); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	sock("stale") // never listens
	if err := syscall.Listen(sock("slow"), 0); err != nil {
		t.Fatal(err)
	}
	for { // until its queue is full
		c, err := net.Dial("unix", path("slow"))
		if err != nil {
			break
		}
		defer c.Close()
	}
	other, err := net.ListenPacket("unixgram", path("datagrams"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	live, err := net.Listen("unix", path("live"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	for name, want := range map[string]func(error) bool{
		"none":      func(err error) bool { return err == nil },
		"stale":     func(err error) bool { return err == nil },
		"live":      func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) },
		"slow":      func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) },
		"datagrams": func(err error) bool { return err != nil },
	} {
		if err := removeStaleSocket(path(name)); !want(err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path(name)); (err != nil) != (name == "stale" || name == "none") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
