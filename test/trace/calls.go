package trace

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// call is one system call of a trace made with strace -f -y -xx.
type call struct {
	// entered and returned are the lines of the trace where the call begins and ends; they are
	// equal if nothing of another thread lies between.
	entered, returned int
	name              string
	// fd is what -y says of the first argument: a path, or socket:[n].
	fd string
	// data is every string argument decoded, one after another.
	data []byte
	// result is what the call returned.
	result string
}

var (
	line    = regexp.MustCompile(`^(\d+)\s+(.*)$`)
	begin   = regexp.MustCompile(`^(\w+)\(\d+<(.*?)>[,)\s]`)
	resumed = regexp.MustCompile(`^<\.\.\. (\w+) resumed>(.*)$`)
	text    = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"`)
	outcome = regexp.MustCompile(`\)\s+= (\S+)`)
)

// parse reads a trace. Lines that are no system call on a descriptor are passed over.
func parse(r io.Reader) ([]call, error) {
	var calls []call
	open := map[string]int{} // thread -> index of its unfinished call
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		thread, rest := m[1], m[2]
		if r := resumed.FindStringSubmatch(rest); r != nil {
			i, ok := open[thread]
			if !ok {
				continue
			}
			delete(open, thread)
			if err := calls[i].finish(n, r[2]); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			continue
		}
		b := begin.FindStringSubmatch(rest)
		if b == nil {
			continue
		}
		calls = append(calls, call{entered: n, name: b[1], fd: path(b[2])})
		c := &calls[len(calls)-1]
		if head, ok := strings.CutSuffix(rest, "<unfinished ...>"); ok {
			open[thread] = len(calls) - 1
			rest = head
		}
		if err := c.finish(n, rest); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return calls, lines.Err()
}

// path decodes what -y and -xx make of a descriptor's name.
func path(s string) string {
	if b, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, "")); err == nil &&
		strings.HasPrefix(s, `\x`) {
		return string(b)
	}
	return s
}

// finish takes the arguments and the result that a part of a call's text holds.
func (c *call) finish(n int, rest string) error {
	for _, m := range text.FindAllStringSubmatch(rest, -1) {
		b, err := hex.DecodeString(strings.ReplaceAll(m[1], `\x`, ""))
		if err != nil {
			return err
		}
		c.data = append(c.data, b...)
	}
	c.returned = n
	if m := outcome.FindStringSubmatch(rest); m != nil {
		c.result = m[1]
	}
	return nil
}

// hasResponse reports whether bytes written to a socket hold an HTTP/2 DATA frame of a stream,
// which is how gRPC answers.
func hasResponse(b []byte) bool {
	for len(b) >= 9 {
		size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if b[3] == 0 && size > 0 && b[5]|b[6]|b[7]|b[8] != 0 {
			return true
		}
		if len(b) < 9+size {
			return false
		}
		b = b[9+size:]
	}
	return false
}
