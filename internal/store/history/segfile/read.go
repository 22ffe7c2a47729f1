package segfile

import (
	"errors"
	"fmt"
	"io"

	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// ReadHeader reads the header of a segment, sealed or not, and rejects a version that this program
// cannot read.
func ReadHeader(file vfs.File, path string) (format.Header, error) {
	b := make([]byte, format.HeaderSize)
	if err := ReadFull(file, path, b, 0); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return format.Header{}, format.Corrupt(path, 0, "the file is shorter than its header")
		}
		return format.Header{}, err
	}
	h, err := format.DecodeHeader(b)
	if err != nil {
		return format.Header{}, format.Corrupt(path, 0, "%v", err)
	}
	return h, format.CheckVersion(h.Version, path)
}

// ReadFull fills b from off. The error is io.ErrUnexpectedEOF if the file is too short.
func ReadFull(file vfs.File, path string, b []byte, off int64) error {
	n, err := file.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || err == io.EOF:
		return fmt.Errorf("history: read %s at offset %d: %w", path, off+int64(n),
			io.ErrUnexpectedEOF)
	default:
		return fmt.Errorf("history: read %s at offset %d: %w", path, off, err)
	}
}
