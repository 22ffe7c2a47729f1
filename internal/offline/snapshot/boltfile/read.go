package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// maxPiece is the limit for a page with its overflow. A value of etcd is far smaller.
	maxPiece = 320 << 20
	// maxDepth is the limit for the levels of a tree; with two keys a page such a tree exceeds
	// every disk.
	maxDepth = 64
)

// Reader reads a file. It is for one goroutine.
type Reader struct {
	r    io.ReaderAt
	size int64
	meta meta
	// seen has a bit for each page that was read.
	seen []uint64
	// progress, if set, is called with the number of bytes read.
	progress func(int64)
}

// Bucket is a bucket of a file.
type Bucket struct {
	Name string
	root uint64
	// inline is the page of a small bucket, which is in the root; nil for other buckets.
	inline []byte
	// at is the offset of the page with the name of the bucket.
	at int64
}

// Open reads the beginning of a file of a size. progress, if not nil, is called later with the
// number of bytes read. Errors of r are returned as they are; others wrap ErrCorrupt.
func Open(r io.ReaderAt, size int64, progress func(int64)) (*Reader, error) {
	f := &Reader{r: r, size: size, progress: progress}
	if err := f.open(); err != nil {
		return nil, err
	}
	if need := f.Size(); need < 0 || need > size {
		return nil, corrupt(size,
			"the file ends here: it is cut short, its %d pages of %d bytes take %d", f.meta.pages,
			f.meta.pageSize, need)
	}
	f.seen = make([]uint64, (f.meta.pages+63)/64)
	return f, nil
}

// open finds the valid meta page: the newer one of those that are complete.
func (f *Reader) open() error {
	first, err := f.metaAt(0)
	if err == nil {
		f.meta = first
		if second, err := f.metaAt(int64(first.pageSize)); err == nil &&
			second.pageSize == first.pageSize && second.txid > first.txid {
			f.meta = second
		}
		return nil
	}
	for size := int64(minPageSize); size <= maxPageSize && errors.Is(err, ErrCorrupt); size *= 2 {
		if m, err := f.metaAt(size); err == nil && int64(m.pageSize) == size {
			f.meta = m
			return nil
		}
	}
	return err
}

// metaAt reads the meta page at an offset.
func (f *Reader) metaAt(off int64) (meta, error) {
	b := make([]byte, pageHeaderSize+metaSize)
	if off+int64(len(b)) > f.size {
		return meta{}, corrupt(off, "%v", errMetaMagic)
	}
	if err := f.fill(b, off); err != nil {
		return meta{}, err
	}
	m, err := decodeMeta(b[pageHeaderSize:])
	if err != nil {
		err = corrupt(off, "%v", err)
	}
	return m, err
}

// Size returns the size of the database in the file, -1 if it is too large. The file may be longer.
func (f *Reader) Size() int64 {
	if f.meta.pages > 1<<62/maxPageSize {
		return -1
	}
	return int64(f.meta.pages) * int64(f.meta.pageSize)
}

// Buckets returns the buckets, by name.
func (f *Reader) Buckets() ([]Bucket, error) {
	var list []Bucket
	err := f.walkTree(f.meta.root, nil, 0, func(off int64, flags uint32, k, v []byte) error {
		if flags&elementBucket == 0 {
			return corrupt(off, "%q at the root is not a bucket", short(k))
		}
		if len(v) < bucketHeaderSize {
			return corrupt(off, "the header of the bucket %q has %d bytes", short(k), len(v))
		}
		b := Bucket{Name: string(k), root: le.Uint64(v), at: off}
		if b.root == 0 {
			b.inline = bytes.Clone(v[bucketHeaderSize:])
		}
		list = append(list, b)
		return nil
	})
	return list, err
}

// ForEach calls fn with the pairs of a bucket in order. They are valid during the call. It ends at
// an error of fn and returns it. Each bucket is read once.
func (f *Reader) ForEach(b Bucket, fn func(key, value []byte) error) error {
	each := func(off int64, flags uint32, k, v []byte) error {
		if flags&elementBucket != 0 {
			return corrupt(off, "there is a bucket %q in the bucket %q", short(k), b.Name)
		}
		return fn(k, v)
	}
	if b.inline == nil {
		return f.walkTree(b.root, nil, 0, each)
	}
	p, err := parse(b.at, b.inline)
	if err != nil {
		return err
	}
	if p.flags != flagLeaf {
		return corrupt(b.at, "the bucket %q is of kind %#x", b.Name, p.flags)
	}
	return p.eachElement(nil, each)
}

func short(b []byte) []byte { return b[:min(len(b), 64)] }

// readPage is a page with its overflow.
type readPage struct {
	off   int64
	flags uint16
	count int
	b     []byte
}

// parse reads the header of a page and checks that its elements fit.
func parse(off int64, b []byte) (readPage, error) {
	if len(b) < pageHeaderSize {
		return readPage{}, corrupt(off, "a page of %d bytes", len(b))
	}
	p := readPage{off: off, flags: le.Uint16(b[8:]), count: int(le.Uint16(b[10:])), b: b}
	if pageHeaderSize+p.count*elementSize > len(b) {
		return p, corrupt(off, "%d elements do not fit into a page of %d bytes", p.count, len(b))
	}
	return p, nil
}

// bytesAt returns n bytes at pos from the beginning of an element.
func (p *readPage) bytesAt(i int, pos, n uint32) ([]byte, error) {
	from := pageHeaderSize + uint64(i)*elementSize + uint64(pos)
	if from+uint64(n) > uint64(len(p.b)) {
		return nil, corrupt(p.off, "element %d of %d ends beyond the page", i, p.count)
	}
	return p.b[from : from+uint64(n)], nil
}

// eachElement calls fn with the elements of a leaf, whose keys must be ascending and above after.
func (p *readPage) eachElement(after []byte,
	fn func(off int64, flags uint32, k, v []byte) error) error {
	for i := range p.count {
		e := p.b[pageHeaderSize+i*elementSize:]
		flags, pos, ksize, vsize := le.Uint32(e), le.Uint32(e[4:]), le.Uint32(e[8:]),
			le.Uint32(e[12:])
		k, err := p.bytesAt(i, pos, ksize)
		if err != nil {
			return err
		}
		v, err := p.bytesAt(i, pos, ksize+vsize)
		if err != nil || ksize+vsize < ksize {
			return corrupt(p.off, "element %d of %d ends beyond the page", i, p.count)
		}
		if len(k) == 0 || after != nil && bytes.Compare(after, k) >= 0 {
			return corrupt(p.off, "the key %q follows %q", short(k), short(after))
		}
		after = k
		if err := fn(p.off, flags, k, v[ksize:]); err != nil {
			return err
		}
	}
	return nil
}

// loadPage reads a page that was not read yet.
func (f *Reader) loadPage(id uint64, depth int) (readPage, error) {
	size := uint64(f.meta.pageSize)
	if id < 2 || id >= f.meta.pages || depth > maxDepth {
		return readPage{}, corrupt(0, "a tree leads to page %d of %d at level %d", id,
			f.meta.pages, depth)
	}
	off := int64(id * size)
	b := make([]byte, size)
	if err := f.fill(b, off); err != nil {
		return readPage{}, err
	}
	if got := le.Uint64(b); got != id {
		return readPage{}, corrupt(off, "this page says that it is page %d and not %d", got, id)
	}
	overflow := uint64(le.Uint32(b[12:]))
	if id+overflow >= f.meta.pages || overflow*size > maxPiece {
		return readPage{}, corrupt(off, "a page goes on for %d pages of %d in all",
			overflow, f.meta.pages)
	}
	for n := id; n <= id+overflow; n++ {
		if f.seen[n/64]&(1<<(n%64)) != 0 {
			return readPage{}, corrupt(int64(n*size), "page %d is in use twice", n)
		}
		f.seen[n/64] |= 1 << (n % 64)
	}
	if overflow > 0 {
		b = append(b, make([]byte, overflow*size)...)
		if err := f.fill(b[size:], off+int64(size)); err != nil {
			return readPage{}, err
		}
	}
	if f.progress != nil {
		f.progress(int64(len(b)))
	}
	return parse(off, b)
}

func (f *Reader) fill(b []byte, off int64) error {
	if _, err := f.r.ReadAt(b, off); err != nil {
		return fmt.Errorf("offset %d: %w", off, err)
	}
	return nil
}

// walkTree walks a tree whose keys must not be below least.
func (f *Reader) walkTree(root uint64, least []byte, depth int,
	fn func(off int64, flags uint32, k, v []byte) error) error {
	p, err := f.loadPage(root, depth)
	if err != nil {
		return err
	}
	switch p.flags {
	case flagLeaf:
		var after []byte
		return p.eachElement(nil, func(off int64, flags uint32, k, v []byte) error {
			if after == nil && bytes.Compare(k, least) < 0 {
				return corrupt(off, "the key %q is below %q, which the page is to begin with",
					short(k), short(least))
			}
			after = k
			return fn(off, flags, k, v)
		})
	case flagBranch:
		return f.walkBranch(&p, least, depth, fn)
	}
	return corrupt(p.off, "a page of kind %#x in a tree", p.flags)
}

// walkBranch walks the children of a branch, and checks that the keys of each are below the keys of
// the next.
func (f *Reader) walkBranch(p *readPage, least []byte, depth int,
	fn func(off int64, flags uint32, k, v []byte) error) error {
	if p.count == 0 {
		return corrupt(p.off, "a branch without children")
	}
	var last []byte // of the child before
	for i := range p.count {
		e := p.b[pageHeaderSize+i*elementSize:]
		k, err := p.bytesAt(i, le.Uint32(e), le.Uint32(e[4:]))
		if err != nil {
			return err
		}
		if bytes.Compare(k, least) < 0 || last != nil && bytes.Compare(k, last) <= 0 {
			return corrupt(p.off, "the child %q of a branch follows %q", short(k), short(last))
		}
		err = f.walkTree(le.Uint64(e[8:]), k, depth+1,
			func(off int64, flags uint32, k, v []byte) error {
				if last != nil && bytes.Compare(last, k) >= 0 {
					return corrupt(off, "the key %q follows %q", short(k), short(last))
				}
				last = append(last[:0], k...)
				return fn(off, flags, k, v)
			})
		if err != nil {
			return err
		}
	}
	return nil
}
