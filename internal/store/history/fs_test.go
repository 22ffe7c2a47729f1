package history

import (
	"context"
	"sync"
	"testing"

	"vigil/internal/vfs"
)

var tContext = context.Background()

// unmapped is a file system whose files cannot be mapped.
type unmapped struct{ vfs.FS }

type plainFile struct{ vfs.File }

func plain(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return plainFile{f}, nil
}

func (u unmapped) Create(name string) (vfs.File, error)    { return plain(u.FS.Create(name)) }
func (u unmapped) Open(name string) (vfs.File, error)      { return plain(u.FS.Open(name)) }
func (u unmapped) OpenWrite(name string) (vfs.File, error) { return plain(u.FS.OpenWrite(name)) }

// mappings is a file system that knows the bytes of all mappings, so that a test can damage them.
type mappings struct {
	vfs.FS
	mu    sync.Mutex
	names map[string]string // from the name at the time of a rename to the next
	bytes map[string][]byte // by the name with which the file was opened
}

func mapped(fsys vfs.FS) *mappings {
	return &mappings{FS: fsys, names: map[string]string{}, bytes: map[string][]byte{}}
}

// of returns the mapped bytes of the file that is now at path.
func (m *mappings) of(t *testing.T, path string) []byte {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, b := range m.bytes {
		for next, ok := name, true; ok; next, ok = m.names[next] {
			if next == path {
				return b
			}
		}
	}
	t.Fatalf("%s is not mapped", path)
	return nil
}

func (m *mappings) Rename(oldname, newname string) error {
	err := m.FS.Rename(oldname, newname)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.names[oldname] = newname
	}
	return err
}

type mappedFile struct {
	vfs.Mapper
	fs *mappings
}

func (f mappedFile) Map(size int64) (vfs.Mapping, error) {
	m, err := f.Mapper.Map(size)
	if err == nil {
		f.fs.mu.Lock()
		defer f.fs.mu.Unlock()
		f.fs.bytes[f.Name()] = m.Bytes()
	}
	return m, err
}

func (m *mappings) mapper(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return mappedFile{f.(vfs.Mapper), m}, nil
}

func (m *mappings) Create(name string) (vfs.File, error) { return m.mapper(m.FS.Create(name)) }
func (m *mappings) Open(name string) (vfs.File, error)   { return m.mapper(m.FS.Open(name)) }
func (m *mappings) OpenWrite(name string) (vfs.File, error) {
	return m.mapper(m.FS.OpenWrite(name))
}
