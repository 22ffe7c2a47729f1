package memfs

import "io/fs"

// Flip flips a bit of a file, as a failing disk does: in the synced bytes and in the bytes that can
// be read. It does not affect writes that are not synced yet, and bytes that were read before.
func (f *FS) Flip(name string, off int64, bit uint) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.lookup(name)
	if err != nil || n.file == nil {
		return pathError("flip", name, fs.ErrNotExist)
	}
	m := &n.file.mu
	m.Lock()
	defer m.Unlock()
	if off < 0 || off >= m.cur.size {
		return pathError("flip", name, fs.ErrInvalid)
	}
	// Pages of the synced image are never written to: others may share them.
	at := int(off / pageSize)
	shared := at < len(m.cur.pages) && at < len(m.synced.pages) &&
		m.cur.pages[at] == m.synced.pages[at]
	m.cur.flip(at, off%pageSize, bit)
	if shared {
		m.synced.pages[at] = m.cur.pages[at]
	} else if at < len(m.synced.pages) {
		m.synced.flip(at, off%pageSize, bit)
	}
	return nil
}

// flip replaces a page by one with another bit.
func (m *image) flip(at int, off int64, bit uint) {
	for at >= len(m.pages) {
		m.pages = append(m.pages, nil)
	}
	q := new(page)
	if p := m.pages[at]; p != nil {
		*q = *p
	}
	q[off] ^= 1 << (bit % 8)
	m.pages[at] = q
}
