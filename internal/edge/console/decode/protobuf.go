package decode

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is a field of a message without a schema.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  uint64 // of a varint or a field of fixed size
	bytes  []byte // of a field with a length
}

// fields splits a message into fields. It rejects groups, which are obsolete.
func fields(b []byte, budget *int) ([]field, bool) {
	var out []field
	for len(b) > 0 {
		if *budget--; *budget < 0 {
			return nil, false
		}
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || number > 100_000 {
			return nil, false
		}
		b = b[n:]
		f := field{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			f.value = uint64(v)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			return nil, false
		}
		if n < 0 {
			return nil, false
		}
		b = b[n:]
		out = append(out, f)
	}
	return out, len(out) > 0
}

// protobuf shows a message without its schema: the field numbers, and nested messages where the
// bytes form one.
func protobuf(value []byte) (text string, cut, ok bool) {
	p := &printer{budget: maxFields}
	list, ok := fields(value, &p.budget)
	if !ok {
		return "", false, false
	}
	p.message(list, 0)
	return p.b.String(), p.full || p.budget < 0, true
}

type printer struct {
	writer
	budget int
}

func (p *printer) message(list []field, indent int) {
	for _, f := range list {
		p.field(strconv.Itoa(int(f.number)), f, indent)
	}
}

func (p *printer) field(name string, f field, indent int) {
	switch f.kind {
	case protowire.VarintType:
		p.line(indent, "%s: %d", name, f.value)
	case protowire.Fixed32Type, protowire.Fixed64Type:
		p.line(indent, "%s: %#x", name, f.value)
	default:
		if printable(f.bytes) {
			p.line(indent, "%s: %s", name, strconv.Quote(string(f.bytes)))
			return
		}
		if indent < maxDepth && !p.full {
			if list, ok := fields(f.bytes, &p.budget); ok {
				p.line(indent, "%s {", name)
				p.message(list, indent+1)
				p.line(indent, "}")
				return
			}
		}
		shown, rest := f.bytes[:min(len(f.bytes), 64)], ""
		if len(shown) < len(f.bytes) {
			rest = fmt.Sprintf(" ... (%d bytes)", len(f.bytes))
		}
		p.line(indent, "%s: 0x%s%s", name, hex.EncodeToString(shown), rest)
	}
}

// printable reports whether bytes are probably text.
func printable(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return false
		}
	}
	return true
}

// kubernetesPrefix is the prefix of a Kubernetes object in protobuf. A runtime.Unknown message
// follows.
var kubernetesPrefix = []byte("k8s\x00")

// metadataNames are the field names of an ObjectMeta.
var metadataNames = map[protowire.Number]string{1: "name", 2: "generateName", 3: "namespace",
	4: "selfLink", 5: "uid", 6: "resourceVersion",
	7: "generation", 8: "creationTimestamp", 9: "deletionTimestamp",
	10: "deletionGracePeriodSeconds", 11: "labels", 12: "annotations",
	13: "ownerReferences", 14: "finalizers", 17: "managedFields"}

// kubernetes shows a Kubernetes object. The type and the metadata have the API's names. Other
// fields have only numbers, because their names depend on the type.
func kubernetes(value []byte) (text string, cut, ok bool) {
	rest, ok := bytes.CutPrefix(value, kubernetesPrefix)
	if !ok {
		return "", false, false
	}
	p := &printer{budget: maxFields}
	outer, ok := fields(rest, &p.budget)
	if !ok {
		return "", false, false
	}
	var raw []byte
	for _, f := range outer {
		switch f.number {
		case 1:
			meta, _ := fields(f.bytes, &p.budget)
			for _, m := range meta {
				if name := map[protowire.Number]string{1: "apiVersion",
					2: "kind"}[m.number]; name != "" {
					p.line(0, "%s: %s", name, scalar(string(m.bytes)))
				}
			}
		case 2:
			raw = f.bytes
		}
	}
	object, ok := fields(raw, &p.budget)
	if !ok {
		return p.b.String(), p.full, p.b.Len() > 0
	}
	for _, f := range object {
		if meta, ok := fields(f.bytes, &p.budget); ok && f.number == 1 {
			p.line(0, "metadata:")
			p.metadata(meta)
			continue
		}
		name := map[protowire.Number]string{2: "spec (field 2)", 3: "status (field 3)"}[f.number]
		if name == "" {
			name = fmt.Sprintf("field %d", f.number)
		}
		p.field(name, f, 0)
	}
	return p.b.String(), p.full || p.budget < 0, true
}

func (p *printer) metadata(list []field) {
	for _, f := range list {
		name := metadataNames[f.number]
		switch {
		case name == "":
			p.field(fmt.Sprintf("field %d", f.number), f, 1)
		case f.number == 8 || f.number == 9:
			if t, ok := fields(f.bytes, &p.budget); ok && t[0].kind == protowire.VarintType {
				p.line(1, "%s: %s", name,
					time.Unix(int64(t[0].value), 0).UTC().Format(time.RFC3339))
			}
		case f.number == 11 || f.number == 12:
			var pair [3][]byte
			list, _ := fields(f.bytes, &p.budget)
			for _, x := range list {
				if x.number < 3 {
					pair[x.number] = x.bytes
				}
			}
			p.line(1, "%s: %s = %s", name, scalar(string(pair[1])), scalar(string(pair[2])))
		case f.kind == protowire.BytesType && utf8.Valid(f.bytes) && f.number != 13 &&
			f.number != 17:
			p.line(1, "%s: %s", name, scalar(string(f.bytes)))
		default:
			p.field(name, f, 1)
		}
	}
}

// IsText reports whether bytes are probably text. The last character may be incomplete.
func IsText(b []byte) bool {
	for i := 0; i < utf8.UTFMax && len(b) > 0; i++ {
		if r, n := utf8.DecodeLastRune(b); r != utf8.RuneError || n > 1 {
			break
		}
		b = b[:len(b)-1]
	}
	return printable(b)
}
