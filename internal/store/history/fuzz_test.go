package history

import (
	"bytes"
	"hash/crc32"
	"testing"

	"vigil/internal/kv"
)

func FuzzRecord(f *testing.F) {
	b := append(make([]byte, recordHeaderSize), "data"...)
	putRecordHeader(b, kindPut, kv.Rev{Main: 3, Sub: 1})
	f.Add(b)
	m := Meta{Bucket: 1, Key: []byte("key"), Value: []byte("value")}
	b = make([]byte, recordHeaderSize+metaSize(&m))
	putMeta(b[recordHeaderSize:], &m)
	putRecordHeader(b, kindMeta, kv.Rev{})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, size, err := decodeRecord(b)
		if err != nil {
			return
		}
		again := append(make([]byte, recordHeaderSize), r.data...)
		putRecordHeader(again, r.kind, r.rev)
		if !bytes.Equal(again[4:], b[4:size]) {
			t.Fatalf("%x is encoded as %x", b[:size], again)
		}
		if checkRecord(b[:size]) && !bytes.Equal(again, b[:size]) {
			t.Fatal("the checksum differs")
		}
		if r.kind != kindMeta && r.kind != kindMetaDeletion {
			return
		}
		m, err := decodeMeta(r)
		if err != nil {
			return
		}
		data := make([]byte, metaSize(&m))
		putMeta(data, &m)
		if !bytes.Equal(data, r.data) {
			t.Fatalf("meta %x is encoded as %x", r.data, data)
		}
	})
}

// FuzzBatch mends the checksum, so that what is behind it is reached.
func FuzzBatch(f *testing.F) {
	d, _ := small(f, 9)
	b := d[sealedName(1, 1, 0)][headerSize:]
	for range 8 {
		h, ok := decodeBatchHeader(b, int64(len(b)))
		if !ok {
			f.Fatal("no batch")
		}
		f.Add(b[:h.length])
		b = b[h.length:]
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := decodeBatchHeader(b, int64(len(b)))
		if !ok {
			return
		}
		again := bytes.Clone(b)
		h.encode(again, 77)
		if !bytes.Equal(again[4:h.length], b[4:h.length]) {
			t.Fatalf("%x is encoded as %x", b, again)
		}
		if !h.check(again, 77) {
			t.Fatal("the checksum does not match")
		}
		at := batchHeaderSize
		n := 0
		err := walkBatch(again, &h, func(off int, r record) error {
			if off != at {
				t.Fatalf("record at %d, want %d", off, at)
			}
			at += recordHeaderSize + len(r.data)
			n++
			return nil
		})
		if err == nil && (n != int(h.records) || align8(int64(at)) != int64(h.length)) {
			t.Fatalf("%d records up to %d of %+v", n, at, h)
		}
	})
}

// FuzzFooter takes the tables and the footer of a sealed segment and mends the footer's checksum.
func FuzzFooter(f *testing.F) {
	d, _ := small(f, 9)
	for name, b := range d {
		if bytes.HasSuffix([]byte(name), []byte(sealedSuffix)) {
			f.Add(b[headerSize:], int64(5), int64(0))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, main, sub int64) {
		if len(b) < footerSize {
			return
		}
		b = append(make([]byte, headerSize), b...)
		end := b[len(b)-footerSize:]
		le.PutUint32(end[footerSize-4:], crc32.Update(7, castagnoli, end[:footerSize-4]))
		foot, err := decodeFooter(end, 7, int64(len(b)))
		if err != nil {
			return
		}
		from := int64(foot.bodyEnd)
		table, metas := foot.table(b[from : from+foot.tableSize()])
		if table.len() != int(foot.records) || len(metas) != 4*int(foot.metas) {
			t.Fatalf("%d records, %d bytes of metas of %+v", table.len(), len(metas), foot)
		}
		rev := kv.Rev{Main: main, Sub: sub}
		if i := table.find(rev); i >= table.len() {
			t.Fatalf("found %d of %d", i, table.len())
		} else if i >= 0 {
			table.offset(i)
		}
		if i := table.ceil(rev); i < 0 || i > table.len() {
			t.Fatalf("ceil is %d of %d", i, table.len())
		}
		s := &sealed{path: "fuzz", data: b, foot: foot, seed: 7, table: table, metas: metas}
		s.refs.Store(1)
		_, _ = s.read(int64(le.Uint32(b[headerSize:])), recordHeaderSize, nil)
		seg := &segment{}
		seg.src.Store(&source{file: s})
		seg.last = kv.Rev{Main: 1 << 62}
		v := &View{segs: []*segment{seg}, lasts: []kv.Rev{seg.last}, open: &openSegment{seg: &segment{}}}
		_, _ = v.Get(rev, nil)
		scan := v.Scan(rev)
		for scan.Next() {
		}
		_ = s.check(tContext)
		_ = s.eachMeta(func(uint32, Meta) {})
	})
}

func FuzzHeader(f *testing.F) {
	h := header{version: 1, clusterID: 2, memberID: 3, id: 4, salt: 5}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHeader(b)
		if err != nil {
			return
		}
		// Bytes 12 to 16 and 48 to 60 are reserved.
		again := h.encode()
		if !bytes.Equal(again[16:48], b[16:48]) {
			t.Fatalf("%x is encoded as %x", b, again)
		}
	})
}
