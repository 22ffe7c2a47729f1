package world

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// trace hashes all events, and writes those that a person reads.
type trace struct {
	hash hash.Hash
	out  *bufio.Writer // nil if there is no reader
	// lines counts those that a person reads.
	lines uint64
}

func (t *trace) open(out io.Writer) {
	t.hash = sha256.New()
	if out != nil {
		t.out = bufio.NewWriter(out)
	}
}

// mix adds an event to the hash.
func (t *trace) mix(kind byte, numbers ...uint64) {
	b := make([]byte, 0, 64)
	b = append(b, kind)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	t.hash.Write(b)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(b []byte) uint64 { return uint64(crc32.Checksum(b, castagnoli)) }

func (t *trace) sum() string {
	if t.out != nil {
		t.out.Flush()
	}
	return hex.EncodeToString(t.hash.Sum(nil)[:16])
}

// Note adds a line to the trace: the time, the machine, what happened.
func (w *World) Note(m *Machine, format string, args ...any) {
	name := "-"
	if m != nil {
		name = m.Name
	}
	line := fmt.Appendf(nil, "%12.6f %-8s ", w.now.Seconds(), name)
	line = fmt.Appendf(line, format, args...)
	if line[len(line)-1] != '\n' {
		line = append(line, '\n')
	}
	w.trace.hash.Write(line)
	w.trace.lines++
	if w.trace.out != nil {
		w.trace.out.Write(line)
	}
}
