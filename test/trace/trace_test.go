package trace

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vigil/test/proc"
)

// TestSyncBeforeReply puts values one after another and checks in the trace, for each: the request
// is read from the socket, its value is written to a file of the log, that file is synced, and
// only then the answer is written to the socket.
func TestSyncBeforeReply(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is not installed (Debian: apt-get install strace)")
	}
	out := filepath.Join(t.TempDir(), "trace")
	s := proc.Start(t, proc.Config{Wrap: []string{strace, "-f", "-y", "-xx", "-s",
		"100000", "-o", out,
		"-e", "trace=read,write,readv,writev,pwrite64,pwritev,pwritev2,sendto,recvfrom,sendmsg,recvmsg,fdatasync,fsync"}})
	c := s.Client()
	const puts = 20
	mark := func(i int) string { return fmt.Sprintf("marked-value-%04d", i) }
	for i := range puts {
		if _, err := c.Put(proc.Context(t), "k", mark(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	s.Kill()

	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	calls, err := parse(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d system calls", len(calls))
	for i := range puts {
		if err := check(calls, []byte(mark(i))); err != nil {
			t.Errorf("put %d: %v\n%s", i, err, story(calls, []byte(mark(i))))
		}
	}
	if i := 0; !t.Failed() {
		t.Logf("put %d:\n%s", i, story(calls, []byte(mark(i))))
	}
}

// moment is where the steps of one put lie in the trace.
type moment struct{ request, write, sync, reply *call }

func find(calls []call, mark []byte) (m moment) {
	for i := range calls {
		c := &calls[i]
		socket := strings.HasPrefix(c.fd, "socket:") || strings.HasPrefix(c.fd, "TCP")
		switch c.name {
		case "read", "readv", "recvfrom", "recvmsg":
			if socket && m.request == nil && bytes.Contains(c.data, mark) {
				m.request = c
			}
		case "fdatasync", "fsync":
			if m.write != nil && m.sync == nil && c.fd == m.write.fd &&
				c.entered > m.write.returned && c.result == "0" {
				m.sync = c
			}
		default:
			// A read that another thread interrupts has its data when it returns, not before.
			if m.request == nil || c.entered < m.request.returned {
				continue
			}
			if !socket && m.write == nil && strings.Contains(c.fd, "/wal/") &&
				bytes.Contains(c.data, mark) {
				m.write = c
			}
			if c.fd == m.request.fd && m.reply == nil && hasResponse(c.data) {
				m.reply = c
			}
		}
	}
	return m
}

func check(calls []call, mark []byte) error {
	m := find(calls, mark)
	switch {
	case m.request == nil:
		return fmt.Errorf("the request is not in the trace")
	case m.reply == nil:
		return fmt.Errorf("the reply is not in the trace")
	case m.write == nil:
		return fmt.Errorf("the value is never written to the log")
	case m.sync == nil:
		return fmt.Errorf("%s is never synced after the write", m.write.fd)
	case m.reply.entered < m.sync.returned:
		return fmt.Errorf("the reply (line %d) precedes the end of %s (line %d)", m.reply.entered,
			m.sync.name, m.sync.returned)
	}
	return nil
}

// story describes the steps of one put for the log.
func story(calls []call, mark []byte) string {
	m := find(calls, mark)
	var b strings.Builder
	for _, c := range []*call{m.request, m.write, m.sync, m.reply} {
		if c == nil {
			b.WriteString("  missing\n")
			continue
		}
		fmt.Fprintf(&b, "  lines %d-%d: %s(%s) %d bytes = %s\n", c.entered, c.returned, c.name,
			c.fd, len(c.data), c.result)
	}
	return b.String()
}

// TestCheck shows on traces written by hand that a reply before the sync is noticed.
func TestCheck(t *testing.T) {
	x := func(b []byte) string {
		var s strings.Builder
		for _, c := range b {
			fmt.Fprintf(&s, `\x%02x`, c)
		}
		return s.String()
	}
	frame := append([]byte{0, 0, 3, 0, 0, 0, 0, 0, 1}, "abc"...)
	request := `10 read(7<socket:[1]>, "` + x([]byte("MARK")) + `", 100) = 4` + "\n"
	write := `10 pwrite64(9<` + x([]byte("/d/wal/1")) + `>, "` + x([]byte("..MARK..")) +
		`", 8, 0) = 8` + "\n"
	reply := `11 write(7<socket:[1]>, "` + x(frame) + `", 12) = 12` + "\n"
	syncs := `10 fdatasync(9<` + x([]byte("/d/wal/1")) + `>) = 0` + "\n"
	syncBegin := `10 fdatasync(9<` + x([]byte("/d/wal/1")) + `> <unfinished ...>` + "\n"
	syncEnd := "10 <... fdatasync resumed>) = 0\n"
	failed := `10 fdatasync(9<` + x([]byte("/d/wal/1")) + `>) = -1 EIO (Input/output error)` + "\n"
	for _, c := range []struct{ trace, want string }{
		{request + write + syncs + reply, ""},
		{request + write + syncBegin + syncEnd + reply, ""},
		{request + write + syncBegin + reply + syncEnd, "precedes"},
		{request + write + reply + syncs, "precedes"},
		{request + write + reply, "never synced"},
		{request + write + failed + reply, "never synced"},
		{request + syncs + write + reply, "never synced"},
		{request + syncs + reply, "never written"},
		{write + syncs + reply, "request is not"},
	} {
		calls, err := parse(strings.NewReader(c.trace))
		if err != nil {
			t.Fatal(err)
		}
		err = check(calls, []byte("MARK"))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q in:\n%s", err, c.want, c.trace)
		}
	}
}
