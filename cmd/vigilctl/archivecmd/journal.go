package archivecmd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"vigil/client"
)

// maxKey limits a key in a journal. Members do not accept keys that large.
const maxKey = 1 << 28

// journal is a file with the changes of a plan, in order.
type journal struct {
	f *os.File
	w *bufio.Writer
	r *bufio.Reader
}

func newJournal(dir string) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, "changes"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &journal{f: f, w: bufio.NewWriter(f)}, nil
}

func (j *journal) close() { _ = j.f.Close() }

// addChange writes a change.
func (j *journal) addChange(c *change) error {
	b := binary.AppendUvarint([]byte{byte(c.op)}, uint64(c.mod))
	b = binary.AppendUvarint(b, uint64(c.lease))
	b = binary.AppendUvarint(b, uint64(len(c.key)))
	_, err := j.w.Write(append(b, c.key...))
	return err
}

func (j *journal) flush() error { return j.w.Flush() }

// rewind returns to the first change.
func (j *journal) rewind() error {
	_, err := j.f.Seek(0, io.SeekStart)
	j.r = bufio.NewReader(j.f)
	return err
}

// nextChange returns the next change, and io.EOF after the last one.
func (j *journal) nextChange() (*change, error) {
	op, err := j.r.ReadByte()
	if err != nil {
		return nil, err // io.EOF at the end
	}
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], err = binary.ReadUvarint(j.r); err != nil {
			return nil, j.damaged(err)
		}
	}
	if numbers[2] > maxKey {
		return nil, j.damaged(fmt.Errorf("a key of %d bytes", numbers[2]))
	}
	key := make([]byte, numbers[2])
	if _, err := io.ReadFull(j.r, key); err != nil {
		return nil, j.damaged(err)
	}
	return &change{operation(op), string(key), int64(numbers[0]), client.LeaseID(numbers[1])}, nil
}

func (j *journal) damaged(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", j.f.Name(), err)
}
