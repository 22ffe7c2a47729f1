package history

import (
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
)

// GetSome appends the records at revs, in the order given, to out. It stops before a record with
// which out.Buf would have more than size bytes; need is the size of that record, 0 if there is
// none. On an error out holds the records before the one that failed. Revisions that are near each
// other cost less.
func (v *View) GetSome(revs []kv.Rev, size int, out *kv.Records) (need int, err error) {
	if len(revs) == 1 {
		b, need, err := v.GetWithin(revs[0], size-len(out.Buf), out.Buf)
		if err == nil && need == 0 {
			out.Buf = b
			out.Close()
		}
		return need, err
	}
	m := bulkReader{v: v, most: size, dst: out.Buf, ends: &out.Ends}
	need, err = m.readAll(revs)
	out.Buf = m.dst
	return need, err
}

// GetFramed appends the records at revs, in the order given, to dst, each as an element of the
// field with a tag of a protobuf message, without growing dst. It returns their number: it stops
// before a record for which there is no room. On an error out holds the records before the one that
// failed.
func (v *View) GetFramed(revs []kv.Rev, tag byte, dst []byte) (out []byte, n int, err error) {
	m := bulkReader{v: v, tag: tag, most: cap(dst), dst: dst}
	_, err = m.readAll(revs)
	return m.dst, m.n, err
}

// bulkReader reads many records. It finds and touches the next ones before it reads them: they are
// seldom in the processor's caches, and so the processor fetches them at the same time.
type bulkReader struct {
	v    *View
	tag  byte // see segfile.Want
	most int  // how many bytes dst may have
	dst  []byte
	n    int    // records in dst
	ends *[]int // where they end, nil if that does not matter

	a     segfile.Access
	ahead segfile.Ahead
	found [segfile.AheadRecords]foundPlace
}

// foundPlace is where a record was found: number i of memory or of a file. Both are nil if it was
// not found.
type foundPlace struct {
	mem  *growing.Memory
	file *segfile.File
	i    int
}

// readAll appends the records at revs to dst until there is no room for one: then need is its size.
func (m *bulkReader) readAll(revs []kv.Rev) (need int, err error) {
	m.a.Begin()
	defer func() {
		m.ahead.Release()
		err = m.a.End(recover(), err)
	}()
	for i, rev := range revs {
		at := i % len(m.found)
		if at == 0 {
			m.findRecords(revs[i:min(i+len(m.found), len(revs))])
		}
		w := segfile.Want{Rev: rev, Room: m.most - len(m.dst), Tag: m.tag}
		out, need, err := m.readOne(&m.found[at], &w)
		// the last: there is no room for an empty record
		if err != nil || need > 0 || m.tag != 0 && len(out) == len(m.dst) {
			return need, err
		}
		m.dst = out
		m.n++
		if m.ends != nil {
			*m.ends = append(*m.ends, len(out))
		}
	}
	return 0, nil
}

// findRecords finds the records at revs, and touches them.
func (m *bulkReader) findRecords(revs []kv.Rev) {
	clear(m.found[:])
	defer func() { m.ahead.Forget(recover()) }()
	for i, rev := range revs {
		src := &source{mem: &m.v.tail}
		if s := m.v.segmentOf(rev); s != nil {
			src = s.source()
		}
		p := foundPlace{mem: src.mem, file: src.file}
		if p.mem == nil {
			p.i = m.ahead.AddFromFile(p.file, rev)
		} else if p.i = p.mem.Find(rev); p.i >= 0 {
			m.ahead.Add(p.mem.Ahead(p.i))
		}
		if p.i >= 0 {
			m.found[i] = p
		}
	}
	m.ahead.Touch()
}

// readOne appends a record whose place is p, if there is room.
func (m *bulkReader) readOne(p *foundPlace, w *segfile.Want) (out []byte, need int, err error) {
	switch {
	case p.mem != nil:
		return appendWithin(p.mem.At(p.i)[format.RecordHeaderSize:], w, m.dst)
	case p.file != nil && m.a.To(p.file) == nil:
		if out, need, err = p.file.Get(p.i, w, m.dst); err == nil || !m.v.patient {
			return out, need, err
		}
	}
	// The record may be in the current batch, or does not exist.
	if s := m.v.segmentOf(w.Rev); s != nil {
		return m.v.readSealed(s, &m.a, w, m.dst)
	}
	return m.v.readMemory(w, m.dst)
}
