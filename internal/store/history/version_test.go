package history

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs/memfs"
)

// TestVersions opens directories in which one file, sealed or not, is in a version that this program
// does not read: they are refused with both numbers and stay as they are, torn tail and all.
func TestVersions(t *testing.T) {
	d, _ := small(t, 9)
	open := format.SegmentName(3)
	for name := range d {
		for _, version := range []uint32{format.OldestVersion - 1, format.Version + 1, 1 << 31} {
			c := dir{}
			for n, b := range d {
				c[n] = append([]byte(nil), b...)
			}
			h, err := format.DecodeHeader(c[name])
			if err != nil {
				t.Fatal(err)
			}
			h.Version = version
			copy(c[name], h.Encode())
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
			text := fmt.Sprintf("%s is in version %d, which is ", name, version)
			if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), text) || !strings.HasSuffix(err.Error(), format.ReadableVersions()) {
				t.Errorf("%s in version %d: %v", name, version, err)
			}
			if !c.equal(readDir(t, o.FS, o.Dir)) {
				t.Errorf("%s in version %d: the refusal changed the directory", name, version)
			}
		}
	}
}
