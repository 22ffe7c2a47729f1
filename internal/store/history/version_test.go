package history

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"vigil/internal/store/history/format"
	"vigil/internal/vfs/memfs"
)

// setVersion makes the header that of another version, in which only the magic, the version and the
// checksum have their place.
func setVersion(b []byte, version uint32) {
	b = b[:format.HeaderSize]
	for i := 12; i < format.HeaderSize-4; i++ {
		b[i] = byte(i)
	}
	format.LE.PutUint32(b[8:], version)
	format.LE.PutUint32(b[format.HeaderSize-4:],
		crc32.Checksum(b[:format.HeaderSize-4], format.Castagnoli))
}

// TestVersions opens directories in which one file, sealed or not, is in a version that this
// program does not read, such as the next one: they are refused with both numbers and stay as they
// are, torn tail and all.
func TestVersions(t *testing.T) {
	d, _ := small(t, 9)
	open := format.SegmentName(3)
	for name := range d {
		for _, version := range []uint32{format.Version - 1, format.Version + 1, 1 << 31} {
			c := dir{}
			for n, b := range d {
				c[n] = append([]byte(nil), b...)
			}
			setVersion(c[name], version)
			for i := len(c[open]) - 100; i < len(c[open]); i++ {
				c[open][i] = 0xaa
			}
			c[format.SegmentName(9)+format.TempSuffix] = []byte("left over")
			o := testOptions(memfs.New())
			o.SegmentBytes = minSegmentBytes
			c.write(t, o.FS, o.Dir)
			l, err := Open(o)
			if err == nil {
				t.Fatal(l.Close())
			}
			text := fmt.Sprintf("%s is in version %d, this program reads version %d", name, version,
				format.Version)
			if !errors.Is(err, ErrVersion) || !strings.HasSuffix(err.Error(), text) {
				t.Errorf("%s in version %d: %v", name, version, err)
			}
			if !c.equal(readDir(t, o.FS, o.Dir)) {
				t.Errorf("%s in version %d: the refusal changed the directory", name, version)
			}
		}
	}
}
