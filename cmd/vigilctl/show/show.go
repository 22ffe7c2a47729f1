// Package show prints answers of members in all formats of etcd's command line, so that scripts
// written for it work.
package show

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Format is a way to print an answer.
type Format string

// The formats.
const (
	Simple   Format = "simple"
	JSON     Format = "json"
	Fields   Format = "fields"
	Table    Format = "table"
	YAML     Format = "yaml"
	Protobuf Format = "protobuf"
)

// Formats lists the formats in the order of the help text.
var Formats = []string{string(Fields), string(JSON), string(Protobuf), string(Simple),
	string(Table), string(YAML)}

// UnsupportedError reports an answer that has no form in a format.
type UnsupportedError struct{ Format Format }

// Error names the format.
func (e *UnsupportedError) Error() string {
	return string(e.Format) + " not supported as output format"
}

// Answer is the output of a command. A format whose field is nil is not supported.
type Answer struct {
	// Value is printed as JSON. It is also printed as protobuf if it is a message and Message is
	// nil.
	Value any
	// Hexadecimal replaces Value as JSON if Printer.Hex is set.
	Hexadecimal any
	// Message is printed as protobuf.
	Message proto.Message
	// Simple and Fields print for people and for scripts that read lines.
	Simple, Fields func(p *Printer)
	// Always prints in every format.
	Always func(p *Printer)
	// Table returns the heading and rows.
	Table func() (heading []string, rows [][]string)
}

// Message returns an answer that is the same line in every format.
func Message(text string) Answer {
	return Answer{Always: func(p *Printer) { p.Printf("%s\n", text) }}
}

// Printer prints answers.
type Printer struct {
	Out    io.Writer
	Format Format
	// Hex prints keys, values and some IDs in hexadecimal: the same IDs as in etcd's command line.
	Hex bool

	err error
}

// Print prints an answer.
func (p *Printer) Print(a Answer) error {
	p.err = nil
	switch {
	case a.Always != nil:
		a.Always(p)
	case p.Format == Simple && a.Simple != nil:
		a.Simple(p)
	case p.Format == Fields && a.Fields != nil:
		a.Fields(p)
	case p.Format == Table && a.Table != nil:
		heading, rows := a.Table()
		p.err = WriteTable(p.Out, heading, rows)
	case (p.Format == JSON || p.Format == YAML) && a.Value != nil:
		v := a.Value
		if p.Hex && a.Hexadecimal != nil {
			v = a.Hexadecimal
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if p.Format == YAML {
			if b, err = ToYAML(b); err != nil {
				return err
			}
			p.Printf("---\n%s", b)
			break
		}
		p.Printf("%s\n", b)
	case p.Format == Protobuf:
		m := a.Message
		if m == nil {
			m, _ = a.Value.(proto.Message)
		}
		if m == nil {
			return &UnsupportedError{p.Format}
		}
		b, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		p.Printf("%s", b)
	default:
		return &UnsupportedError{p.Format}
	}
	return p.err
}

// Printf prints. Print returns its first error.
func (p *Printer) Printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.Out, format, args...)
	}
}

// text formats a key or a value for a line.
func (p *Printer) text(b []byte) string {
	if !p.Hex {
		return string(b)
	}
	var s strings.Builder
	for _, c := range b {
		s.WriteString(`\x`)
		s.WriteString(hex.EncodeToString([]byte{c}))
	}
	return s.String()
}

// id formats a number that etcd's command line prints in hexadecimal with --hex.
func (p *Printer) id(name string, v uint64) {
	if p.Hex {
		p.Printf("%q : %x\n", name, v)
	} else {
		p.Printf("%q : %d\n", name, v)
	}
}

// lease formats the ID of a lease, padded if it is hexadecimal.
func (p *Printer) lease(name string, v int64) {
	if p.Hex {
		p.Printf("%q : %016x\n", name, v)
	} else {
		p.Printf("%q : %d\n", name, v)
	}
}

// header prints the fields of a header.
func (p *Printer) header(h *etcdserverpb.ResponseHeader) {
	p.id("ClusterID", h.GetClusterId())
	p.id("MemberID", h.GetMemberId())
	if h.GetRevision() > 0 {
		p.Printf("\"Revision\" : %d\n", h.GetRevision())
	}
	p.Printf("\"RaftTerm\" : %d\n", h.GetRaftTerm())
}

// pair prints a key and its value on two lines.
func (p *Printer) pair(kv *mvccpb.KeyValue, valueOnly bool) {
	if !valueOnly {
		p.Printf("%s\n", p.text(kv.GetKey()))
	}
	p.Printf("%s\n", p.text(kv.GetValue()))
}

// fields prints all fields of a key-value pair.
func (p *Printer) fields(prefix string, kv *mvccpb.KeyValue) {
	p.Printf("\"%sKey\" : %q\n", prefix, kv.GetKey())
	p.Printf("\"%sCreateRevision\" : %d\n", prefix, kv.GetCreateRevision())
	p.Printf("\"%sModRevision\" : %d\n", prefix, kv.GetModRevision())
	p.Printf("\"%sVersion\" : %d\n", prefix, kv.GetVersion())
	p.Printf("\"%sValue\" : %q\n", prefix, kv.GetValue())
	p.lease(prefix+"Lease", kv.GetLease())
}

// Line prints one line.
func (p *Printer) Line(format string, args ...any) error {
	_, err := fmt.Fprintf(p.Out, format+"\n", args...)
	return err
}
