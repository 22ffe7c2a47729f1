package diff

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vigil/test/proc"
)

// chunks calls a method of the JSON gateway and sends the body, and returns a function that reads
// the next chunk of the answer.
func chunks(t *testing.T, addr, path, body string) func() []byte {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path,
		len(body), body); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	header := true
	return func() []byte {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		line := func() string {
			s, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			return strings.TrimRight(s, "\r\n")
		}
		for header {
			header = line() != ""
		}
		n, err := strconv.ParseInt(line(), 16, 64)
		if err != nil {
			t.Fatalf("%s: the size of a chunk: %v", path, err)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(in, b); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		line()
		return b
	}
}

// TestChunks: the JSON gateway sends each message of a stream as one chunk, like etcd, whatever its
// size and however many write. The line feed of a long message is a chunk of its own, in etcd too.
// There are clients that take a chunk for a message.
func TestChunks(t *testing.T) {
	t.Parallel()
	type counts map[string]int // of chunks, by what they have
	all := map[proc.Program]counts{}
	for _, program := range []proc.Program{proc.Etcd, proc.Vigil} {
		s := proc.Start(t, proc.Config{Program: program, Memory: true})
		ctx, c := proc.Context(t), s.Client()
		found := counts{}
		all[program] = found
		// message reads the chunks of a message and returns it. Its first chunk must be whole.
		message := func(what string, next func() []byte, into any) {
			t.Helper()
			first := next()
			if err := json.Unmarshal(first, into); err != nil {
				t.Fatalf("%s: %s: a chunk of %d bytes is not a message: %v", program, what,
					len(first), err)
			}
			shape := what + ", with its line feed"
			if !bytes.HasSuffix(first, []byte("\n")) {
				shape = what + ", before its line feed"
				if rest := next(); string(rest) != "\n" {
					t.Fatalf("%s: %s: %d bytes after a message of %d", program, what,
						len(rest), len(first))
				}
			}
			found[shape]++
		}
		b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
		type watched struct {
			Result struct {
				Events []struct{ Kv struct{ Key []byte } }
			}
		}

		next := chunks(t, s.Addr(), "/v3/watch",
			`{"create_request":{"key":"`+b64("w")+`","range_end":"`+b64("x")+`"}}`)
		message("watch, created", next, new(watched))
		for size := 1; size <= 1<<20; size *= 2 {
			if _, err := c.Put(ctx, "w", strings.Repeat("x", size)); err != nil {
				t.Fatal(err)
			}
			message(fmt.Sprintf("watch, a value of %d bytes", size), next, new(watched))
		}
		for _, writers := range []int{1, 10, 100} {
			var group sync.WaitGroup
			const each = 20
			for w := range writers {
				group.Go(func() {
					for i := range each {
						if _, err := c.Put(ctx, fmt.Sprintf("w%d", w),
							strings.Repeat("y", 1<<(4+(w+i)%12))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			for left := writers * each; left > 0; {
				var m watched
				message("watch, many writers", next, &m)
				left -= len(m.Result.Events)
			}
			group.Wait()
		}

		lease, err := c.Grant(ctx, 3600)
		if err != nil {
			t.Fatal(err)
		}
		message("keep-alive",
			chunks(t, s.Addr(), "/v3/lease/keepalive",
				fmt.Sprintf(`{"ID":"%d"}`, lease.ID)), new(any))

		next = chunks(t, s.Addr(), "/v3/election/observe", `{"name":"`+b64("e")+`"}`)
		if _, err := c.Put(ctx, "e/0", "leader"); err != nil {
			t.Fatal(err)
		}
		message("observe, a short value", next, new(any))
		if _, err := c.Put(ctx, "e/0", strings.Repeat("l", 1<<20)); err != nil {
			t.Fatal(err)
		}
		message("observe, a value of 1 MiB", next, new(any))

		next = chunks(t, s.Addr(), "/v3/maintenance/snapshot", `{}`)
		for range 4 {
			message("snapshot", next, new(any))
		}
	}
	etcd, vigil := all[proc.Etcd], all[proc.Vigil]
	for _, found := range []counts{etcd, vigil} {
		// How many events a message has depends on time.
		delete(found, "watch, many writers, with its line feed")
		delete(found, "watch, many writers, before its line feed")
	}
	if !maps.Equal(etcd, vigil) {
		t.Errorf("chunks of etcd: %v\nof vigil: %v", etcd, vigil)
	}
}
