package gateway

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"
)

// sink is a connection that keeps what is written.
type sink struct {
	net.Conn
	buf bytes.Buffer
}

func (s *sink) Write(b []byte) (int, error) { return s.buf.Write(b) }

func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// messages parses the frames that were written.
func (s *sink) messages(t *testing.T) (list [][]byte) {
	t.Helper()
	begun := false
	var message []byte
	for b := s.buf.Bytes(); len(b) > 0; {
		first, n := b[0], int(b[1])
		b = b[2:]
		switch n {
		case 126:
			n, b = int(binary.BigEndian.Uint16(b)), b[2:]
		case 127:
			n, b = int(binary.BigEndian.Uint64(b)), b[8:]
		}
		if want := byte(frameText); n > frameSize || first&^frameFinal != want && !begun ||
			first&^frameFinal != 0 && begun {
			t.Fatalf("a frame of %d bytes that begins with %#x, begun %v", n, first, begun)
		}
		message, b, begun = append(message, b[:n]...), b[n:], true
		if first&frameFinal != 0 {
			list = append(list, message)
			message, begun = nil, false
		}
	}
	if begun {
		t.Fatal("a message has no end")
	}
	return list
}

// TestLines: each line is a message, however it is cut when it is written and in how many frames it
// goes out.
func TestLines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{7, 1 << 10, 1 << 16, frameSize + 2} {
		conn := &sink{}
		sock := &socket{Conn: conn}
		sock.startPacing(t.Context(), conn.SetWriteDeadline)
		l := &lines{sock: sock, header: http.Header{}}
		var want [][]byte
		var text []byte
		for _, n := range []int{1, 0, 125, 126, 1<<16 - 1, 1 << 16, frameSize - 1, frameSize,
			frameSize + 1, 2 * frameSize, 3*frameSize + 5} {
			line := bytes.Repeat([]byte{'a' + byte(len(want))}, n)
			if n > 0 {
				want = append(want, line)
			}
			text = append(append(text, line...), '\n')
		}
		for text = text[:len(text)-1]; len(text) > 0; {
			n := min(len(text), 1+rnd.IntN(most))
			if k, err := l.Write(text[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			if len(l.frame) > maxFrameHead+frameSize {
				t.Fatalf("%d bytes are kept", len(l.frame))
			}
			text = text[n:]
		}
		if err := l.endMessage(); err != nil {
			t.Fatal(err)
		}
		sock.release()
		if got := conn.messages(t); len(got) != len(want) {
			t.Errorf("%d messages of %d", len(got), len(want))
		} else {
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("message %d has %d bytes, not the %d of its line", i,
						len(got[i]), len(want[i]))
				}
			}
		}
	}
}
