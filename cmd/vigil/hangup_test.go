package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal returns both ends of a new terminal.
func terminal(t *testing.T) (screen, end *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	end, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return screen, end
}

// A member in a terminal ends with it. Before that it prints the messages that programs wait for,
// to the letter: a terminal may be that of a container or a test.
func TestTerminalCloses(t *testing.T) {
	// Under nohup a child would ignore the signal, too.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	screen, end := terminal(t)
	c := process(t)
	c.Stdin, c.Stdout, c.Stderr = end, end, end
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	lines := bufio.NewScanner(screen)
	serving := false
	for lines.Scan() && !strings.Contains(lines.Text(), "ready to serve client requests") {
		serving = serving || strings.Contains(lines.Text(), "serving client traffic insecurely")
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if !serving {
		t.Error("no line about the traffic of clients before the one that the member is ready")
	}
	screen.Close()
	defer time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() }).Stop()
	if err := c.Wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
}
