package diff

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// A script is a list of calls, one on a line: the method, without the package if that is etcd's,
// and the request in protobuf's text format in braces, or its bytes as hex:00ff. Lines that begin
// with # are comments.

// WriteScript writes calls so that ReadScript reads them back. Metadata and options are left out.
func WriteScript(w io.Writer, calls []Call) error {
	for _, c := range calls {
		if _, err := fmt.Fprintf(w, "%s %s\n", strings.TrimPrefix(c.Method, "etcdserverpb."),
			c.text()); err != nil {
			return err
		}
	}
	return nil
}

// ReadScript reads a script.
func ReadScript(r io.Reader) ([]Call, error) {
	var calls []Call
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		c, err := parseCall(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		calls = append(calls, c)
	}
	return calls, lines.Err()
}

func parseCall(line string) (Call, error) {
	method, req, _ := strings.Cut(line, " ")
	if service, _, _ := strings.Cut(method, "/"); !strings.Contains(service, ".") {
		method = "etcdserverpb." + method
	}
	c := Call{Method: method}
	if digits, ok := strings.CutPrefix(req, "hex:"); ok {
		raw, err := hex.DecodeString(digits)
		if err != nil {
			return c, err
		}
		c.Raw = append([]byte{}, raw...)
		return c, nil
	}
	if len(req) < 2 || req[0] != '{' || req[len(req)-1] != '}' {
		return c, fmt.Errorf("%q is neither a message in braces nor hex bytes", req)
	}
	for name, m := range methods {
		if m != method {
			continue
		}
		msg, err := newMessage(name)
		if err != nil {
			return c, err
		}
		c.Req = msg
		return c, prototext.Unmarshal([]byte(req[1:len(req)-1]), msg)
	}
	return c, fmt.Errorf("no method is called %q", method)
}

func newMessage(name protoreflect.FullName) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}
