package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Plan is the result of a Builder that counts.
type Plan struct {
	pages, root uint64
}

// Size returns the size of the file in bytes.
func (p Plan) Size() int64 { return int64(p.pages) * PageSize }

// Builder lays out a file. Two are used with the same content: one of NewCounter computes the size
// of the file, which its first page contains, and one of NewWriter writes the file. It is for one
// goroutine.
//
//	b.Bucket("a"); b.Put(k, v); b.Put(k, v); b.Bucket("b"); ...; plan, err := b.Finish()
type Builder struct {
	out  io.Writer // nil to count
	plan Plan
	next uint64 // the number of the next page
	// levels are the incomplete pages of the current bucket, the leaf first.
	levels  []page
	name    string
	began   bool
	last    []byte // the last key
	buckets []bucket
	buf     []byte
	err     error
}

type bucket struct {
	name string
	root uint64
}

// page is an incomplete page.
type page struct {
	branch bool
	elems  []element
	data   []byte // keys and values; not kept for a leaf while counting
	size   int    // of the elements and data
	first  []byte // the first key
}

type element struct {
	key, value int // lengths; a branch has no value
	flags      uint32
	child      uint64
}

// NewCounter returns a Builder that only counts.
func NewCounter() *Builder { return newBuilder(nil, Plan{}) }

// NewWriter returns a Builder that writes the file of a plan.
func NewWriter(out io.Writer, p Plan) *Builder { return newBuilder(out, p) }

func newBuilder(out io.Writer, p Plan) *Builder {
	b := &Builder{out: out, plan: p, next: 3}
	if out == nil {
		return b
	}
	for id := range uint64(2) {
		m := meta{pageSize: PageSize, root: p.root, freelist: 2, pages: p.pages, txid: id}
		b.buf = m.appendTo(b.buf[:0], id)
		b.emit(1)
	}
	b.buf = appendPageHeader(b.buf[:0], 2, flagFreelist, 0, 0)
	b.emit(1)
	return b
}

// emit writes buf, padded to a number of pages.
func (b *Builder) emit(pages int) {
	b.buf = append(b.buf, make([]byte, pages*PageSize-len(b.buf))...)
	if b.err == nil {
		_, b.err = b.out.Write(b.buf)
	}
	if cap(b.buf) > 64*PageSize {
		b.buf = nil
	}
}

// Bucket completes the current bucket and begins another.
func (b *Builder) Bucket(name string) error {
	b.end()
	b.name, b.began, b.last = name, true, nil
	return b.err
}

// Put adds a pair to the current bucket, in ascending order of keys. It keeps neither key nor
// value.
func (b *Builder) Put(key, value []byte) error {
	switch {
	case b.err != nil:
	case !b.began:
		b.err = errors.New("boltfile: no bucket has begun")
	case len(key) > MaxKey:
		b.err = fmt.Errorf("boltfile: bucket %q: a key of %d bytes, the limit is %d", b.name,
			len(key), MaxKey)
	case len(key) == 0 || b.last != nil && bytes.Compare(b.last, key) >= 0:
		b.err = fmt.Errorf("boltfile: bucket %q: the key %q cannot follow %q", b.name, key, b.last)
	default:
		b.addElement(0, key, value, element{})
		b.last = append(b.last[:0], key...)
	}
	return b.err
}

// addElement adds an element to the incomplete page of a level, and writes the page before that if
// the element does not fit.
//
// A branch page has at least two children, also with long keys: with one child each, a level would
// have as many pages as the level below it, and the library expects two. So a branch page with two
// children accepts a third and overflows; when a page is written its last child is moved to the
// next page, which then has two.
func (b *Builder) addElement(level int, key, value []byte, e element) {
	if level == len(b.levels) {
		b.levels = append(b.levels, page{branch: level > 0})
	}
	e.key, e.value = len(key), len(value)
	size := elementSize + len(key) + len(value)
	if p := &b.levels[level]; pageHeaderSize+p.size+size > PageSize {
		switch n := len(p.elems); {
		case p.branch && n > minChildren:
			b.flushPage(level, n-1)
		case !p.branch && n > 0:
			b.flushPage(level, n)
		}
	}
	p := &b.levels[level]
	if len(p.elems) == 0 {
		p.first = append(p.first[:0], key...)
	}
	p.elems = append(p.elems, e)
	p.size += size
	if b.out != nil || p.branch {
		p.data = append(append(p.data, key...), value...)
	}
}

// flushPage writes the first n elements of the page of a level and adds the page to the level
// above. At most the last element remains.
func (b *Builder) flushPage(level, n int) {
	p := &b.levels[level]
	rest := p.cutLast(n)
	child, first := b.writePage(p)
	b.addElement(level+1, first, nil, element{child: child})
	p = &b.levels[level]
	data := p.data[:0]
	if cap(data) > 16*PageSize {
		data = nil
	}
	*p = page{branch: p.branch, elems: p.elems[:0], data: data, first: p.first[:0]}
	if rest != nil {
		b.addElement(level, rest.key, nil, element{child: rest.child})
	}
}

// child is an element of a branch.
type child struct {
	key   []byte
	child uint64
}

// cutLast removes the last element of a branch page with more than n elements.
func (p *page) cutLast(n int) *child {
	if len(p.elems) <= n {
		return nil
	}
	e := p.elems[n]
	at := len(p.data) - e.key
	c := &child{slices.Clone(p.data[at:]), e.child}
	p.elems, p.data, p.size = p.elems[:n], p.data[:at], p.size-elementSize-e.key
	return c
}

// writePage assigns a page its number and writes it.
func (b *Builder) writePage(p *page) (id uint64, first []byte) {
	n := max((pageHeaderSize+p.size+PageSize-1)/PageSize, 1)
	id = b.next
	b.next += uint64(n)
	if b.out == nil {
		return id, p.first
	}
	flags := uint16(flagLeaf)
	if p.branch {
		flags = flagBranch
	}
	b.buf = appendPageHeader(b.buf[:0], id, flags, uint16(len(p.elems)), uint32(n-1))
	at := 0
	for i, e := range p.elems {
		// The position of the data, relative to the element.
		pos := uint32((len(p.elems)-i)*elementSize + at)
		if p.branch {
			b.buf = le.AppendUint32(b.buf, pos)
			b.buf = le.AppendUint32(b.buf, uint32(e.key))
			b.buf = le.AppendUint64(b.buf, e.child)
		} else {
			b.buf = le.AppendUint32(b.buf, e.flags)
			b.buf = le.AppendUint32(b.buf, pos)
			b.buf = le.AppendUint32(b.buf, uint32(e.key))
			b.buf = le.AppendUint32(b.buf, uint32(e.value))
		}
		at += e.key + e.value
	}
	b.buf = append(b.buf, p.data...)
	b.emit(n)
	return id, p.first
}

// closeTree writes the rest of a tree and returns its root.
func (b *Builder) closeTree() uint64 {
	if len(b.levels) == 0 {
		b.levels = append(b.levels, page{})
	}
	for level := 0; ; level++ {
		if level == len(b.levels)-1 {
			root, _ := b.writePage(&b.levels[level])
			b.levels = b.levels[:0]
			return root
		}
		b.flushPage(level, len(b.levels[level].elems))
	}
}

func (b *Builder) end() {
	if b.began && b.err == nil {
		b.buckets = append(b.buckets, bucket{b.name, b.closeTree()})
	}
	b.began = false
}

// Finish completes the file. A Builder that counts returns the plan; one that writes fails if its
// content differs from the counted one.
func (b *Builder) Finish() (Plan, error) {
	b.end()
	slices.SortFunc(b.buckets, func(x, y bucket) int { return strings.Compare(x.name, y.name) })
	for _, c := range b.buckets {
		header := le.AppendUint64(nil, c.root)
		b.addElement(0, []byte(c.name), le.AppendUint64(header, 0), element{flags: elementBucket})
	}
	p := Plan{root: b.closeTree()}
	p.pages = b.next
	if b.err == nil && b.out != nil && p != b.plan {
		b.err = fmt.Errorf("boltfile: the file has %d pages, and %d were counted",
			p.pages, b.plan.pages)
	}
	return p, b.err
}
