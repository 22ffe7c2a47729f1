package world

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Numbers of sections of a WebAssembly program.
const (
	sectionGlobal    = 6
	sectionExport    = 7
	sectionData      = 11
	sectionDataCount = 12
)

// program is a WebAssembly program without its data, which exports all its global variables. So an
// instance of it can be made with another content of its memory.
type program struct {
	code    []byte
	data    []segmentOfData
	globals int
}

// segmentOfData is what a part of the memory has at the start of the program.
type segmentOfData struct {
	at    uint32
	bytes []byte
}

var errProgram = errors.New("this is not a WebAssembly program as Go makes them")

// globalName is the name under which a global variable is exported.
func globalName(n int) string { return fmt.Sprintf("global %d", n) }

// parseProgram takes a program apart. It knows what Go's linker writes: one memory, and no imported
// global variables.
func parseProgram(code []byte) (*program, error) {
	if len(code) < 8 {
		return nil, errProgram
	}
	p := &program{code: append([]byte(nil), code[:8]...)}
	r := &reader{b: code[8:]}
	for len(r.b) > 0 {
		id := r.byte()
		s := &reader{b: r.bytes(r.uint())}
		body := s.b
		switch id {
		case sectionGlobal:
			p.globals = int(s.uint())
		case sectionExport:
			n := s.uint()
			body = binary.AppendUvarint(nil, n+uint64(p.globals))
			body = append(body, s.b...)
			for i := range p.globals {
				name := globalName(i)
				body = append(binary.AppendUvarint(body, uint64(len(name))), name...)
				body = binary.AppendUvarint(append(body, 3), uint64(i))
			}
		case sectionData:
			for n := s.uint(); n > 0 && !s.failed; n-- {
				if s.uint() != 0 || s.byte() != 0x41 { // of the first memory, at a constant
					return nil, errProgram
				}
				at := s.int()
				if s.byte() != 0x0b {
					return nil, errProgram
				}
				p.data = append(p.data, segmentOfData{uint32(at), s.bytes(s.uint())})
			}
			if s.failed {
				return nil, errProgram
			}
			continue
		case sectionDataCount:
			continue
		}
		p.code = append(p.code, id)
		p.code = binary.AppendUvarint(p.code, uint64(len(body)))
		p.code = append(p.code, body...)
		if s.failed {
			return nil, errProgram
		}
	}
	if r.failed || p.globals == 0 || p.data == nil {
		return nil, errProgram
	}
	return p, nil
}

// reader reads the parts of a program. It remembers whether one was cut off.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.failed, n = true, uint64(len(r.b))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) byte() byte {
	if b := r.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// uint reads a number without a sign.
func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.bytes(uint64(max(n, 1)))
	return v
}

// int reads a number with a sign, of 32 bits.
func (r *reader) int() int32 {
	var v int64
	for shift := 0; ; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b&0x80 == 0 || shift > 28 {
			if shift += 7; b&0x40 != 0 {
				v |= -1 << shift
			}
			return int32(v)
		}
	}
}
