package sick

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The times in what a member sends: the header of its pages, and the field of its samples for the
// consoles of other members.
var (
	dateHeader = regexp.MustCompile(`Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`)
	sampledAt  = regexp.MustCompile(`"at":\d{13}\b`)
)

// shiftTimes listens at a new address, which it returns, and forwards to another one. The times in
// what comes back are later. A process cannot have a clock of its own: a time namespace shifts only
// clocks that count from the start of the machine.
func shiftTimes(t testing.TB, to string, by time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go forwardShifted(in, to, by)
		}
	}()
	return l.Addr().String()
}

func forwardShifted(in net.Conn, to string, by time.Duration) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		defer out.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := in.Read(b)
			if err != nil {
				return
			}
			if _, err := out.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	from := bufio.NewReader(out)
	if first, err := from.Peek(1); err == nil && first[0] == peerMagic {
		forwardFrames(in, from, by)
		return
	}
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := in.Write(shifted(b[:n], by)); err != nil {
			return
		}
	}
}

// The stream between members of docs/formats/peer.md: the first byte, the length of what begins a
// reply, and that of a frame's header.
const (
	peerMagic  = 0x8f
	peerReply  = 10
	peerHeader = 12
)

// forwardFrames forwards what the member that was dialed sends on a stream between members. Each
// frame has a checksum.
func forwardFrames(to io.Writer, from io.Reader, by time.Duration) {
	le, table := binary.LittleEndian, crc32.MakeTable(crc32.Castagnoli)
	reply := make([]byte, peerReply)
	if _, err := io.ReadFull(from, reply); err != nil {
		return
	}
	body := make([]byte, int(le.Uint16(reply[8:]))+4)
	if _, err := io.ReadFull(from, body); err != nil {
		return
	}
	if _, err := to.Write(append(reply, body...)); err != nil {
		return
	}
	for {
		header := make([]byte, peerHeader)
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		payload := make([]byte, le.Uint32(header[4:]))
		if _, err := io.ReadFull(from, payload); err != nil {
			return
		}
		payload = shifted(payload, by)
		le.PutUint32(header[8:], crc32.Update(crc32.Checksum(header[:8], table), table, payload))
		if _, err := to.Write(append(header, payload...)); err != nil {
			return
		}
	}
}

// shifted returns bytes with later times, of the same length.
func shifted(b []byte, by time.Duration) []byte {
	b = dateHeader.ReplaceAllFunc(b, func(header []byte) []byte {
		at, err := http.ParseTime(strings.TrimPrefix(string(header), "Date: "))
		if err != nil {
			return header
		}
		return []byte("Date: " + at.Add(by).UTC().Format(http.TimeFormat))
	})
	return sampledAt.ReplaceAllFunc(b, func(field []byte) []byte {
		at, err := strconv.ParseInt(strings.TrimPrefix(string(field), `"at":`), 10, 64)
		if err != nil {
			return field
		}
		return strconv.AppendInt([]byte(`"at":`), at+by.Milliseconds(), 10)
	})
}
