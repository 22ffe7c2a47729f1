package history

import (
	"bytes"
	"hash/crc32"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs/memfs"
)

func FuzzRecord(f *testing.F) {
	b := append(make([]byte, format.RecordHeaderSize), "data"...)
	format.PutRecordHeader(b, format.KindPut, kv.Rev{Main: 3, Sub: 1}, 7)
	f.Add(b)
	m := Meta{Bucket: 1, Key: []byte("key"), Value: []byte("value")}
	b = make([]byte, format.RecordHeaderSize+format.MetaSize(&m))
	format.PutMeta(b[format.RecordHeaderSize:], &m)
	format.PutRecordHeader(b, format.KindMeta, kv.Rev{}, 0)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, size, err := format.DecodeRecord(b)
		if err != nil {
			return
		}
		again := append(make([]byte, format.RecordHeaderSize), r.Data...)
		format.PutRecordHeader(again, r.Kind, r.Rev, r.Time)
		if !bytes.Equal(again[4:], b[4:size]) {
			t.Fatalf("%x is encoded as %x", b[:size], again)
		}
		if format.CheckRecord(b[:size]) && !bytes.Equal(again, b[:size]) {
			t.Fatal("the checksum differs")
		}
		if r.Kind != format.KindMeta && r.Kind != format.KindMetaDeletion {
			return
		}
		m, err := format.DecodeMeta(r)
		if err != nil {
			return
		}
		data := make([]byte, format.MetaSize(&m))
		format.PutMeta(data, &m)
		if !bytes.Equal(data, r.Data) {
			t.Fatalf("meta %x is encoded as %x", r.Data, data)
		}
	})
}

// FuzzBatch mends the checksum, so that the code after the check is reached.
func FuzzBatch(f *testing.F) {
	d, _ := small(f, 9)
	b := d[format.SealedName(1, 1, 0)][format.HeaderSize:]
	for range 8 {
		h, ok := format.DecodeBatchHeader(b, int64(len(b)))
		if !ok {
			f.Fatal("no batch")
		}
		f.Add(b[:h.Length])
		b = b[h.Length:]
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := format.DecodeBatchHeader(b, int64(len(b)))
		if !ok {
			return
		}
		again := bytes.Clone(b)
		h.Encode(again, 77)
		if !bytes.Equal(again[4:h.Length], b[4:h.Length]) {
			t.Fatalf("%x is encoded as %x", b, again)
		}
		if !h.Check(again, 77) {
			t.Fatal("the checksum does not match")
		}
		at := format.BatchHeaderSize
		n := 0
		err := format.WalkBatch(again, &h, func(off int, r format.Record) error {
			if off != at {
				t.Fatalf("record at %d, want %d", off, at)
			}
			at += format.RecordHeaderSize + len(r.Data)
			n++
			return nil
		})
		if err == nil && (n != int(h.Records) || format.Align8(int64(at)) != int64(h.Length)) {
			t.Fatalf("%d records up to %d of %+v", n, at, h)
		}
	})
}

// FuzzFooter takes the tables and the footer of a sealed segment and mends the checksums.
func FuzzFooter(f *testing.F) {
	d, _ := small(f, 9)
	for name, b := range d {
		if bytes.HasSuffix([]byte(name), []byte(format.SealedSuffix)) {
			f.Add(b[format.HeaderSize:], int64(5), int64(0))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, main, sub int64) {
		if len(b) < format.FooterSize {
			return
		}
		b = append(make([]byte, format.HeaderSize), b...)
		end := b[len(b)-format.FooterSize:]
		// The id in the header is that of the footer, which the fuzzer chooses.
		head := format.Header{Version: format.Version, ID: format.LE.Uint64(end[8:])}
		copy(b, head.Encode())
		mend := func() (format.Footer, error) {
			format.LE.PutUint32(end[format.FooterSize-4:],
				crc32.Update(head.Sum, format.Castagnoli, end[:format.FooterSize-4]))
			return format.DecodeFooter(end, head.Sum, int64(len(b)))
		}
		foot, err := mend()
		if err != nil {
			return
		}
		tables := b[foot.BodyEnd:][:foot.TableSize()]
		format.LE.PutUint32(end[52:], crc32.Update(head.Sum, format.Castagnoli, tables))
		if foot, err = mend(); err != nil {
			t.Fatal(err)
		}
		table, metas := foot.Tables(tables)
		if table.Len() != int(foot.Records) || len(metas) != 4*int(foot.Metas) {
			t.Fatalf("%d records, %d bytes of metas of %+v", table.Len(), len(metas), foot)
		}
		rev := kv.Rev{Main: main, Sub: sub}
		if i := table.Find(rev); i >= table.Len() {
			t.Fatalf("found %d of %d", i, table.Len())
		} else if i >= 0 {
			table.Offset(i)
		}
		if i := table.Ceil(rev); i < 0 || i > table.Len() {
			t.Fatalf("ceil is %d of %d", i, table.Len())
		}
		fsys := memfs.New()
		name := format.SealedName(foot.FirstID, foot.LastID, foot.Generation)
		dir{name: b}.write(t, fsys, "/d")
		file, err := fsys.Open("/d/" + name)
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := segfile.Open(file, "/d/"+name)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		_, _, _ = s.Head(format.LE.Uint32(b[format.HeaderSize:]))
		seg := &segment{}
		seg.src.Store(&source{file: s})
		seg.last = kv.Rev{Main: 1 << 62}
		v := &View{segs: []*segment{seg}, lasts: []kv.Rev{seg.last}, open: &segment{}}
		_, _ = v.Get(rev, nil)
		scan := v.Scan(rev)
		for scan.Next() {
		}
		_ = s.Check(tContext)
		_ = s.EachMeta(func(uint32, Meta) {})
	})
}

func FuzzHeader(f *testing.F) {
	h := format.Header{Version: 1, ClusterID: 2, MemberID: 3, ID: 4, Salt: 5}
	f.Add(h.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := format.DecodeHeader(b)
		if err != nil {
			return
		}
		// Bytes 12 to 16 and 48 to 60 are reserved.
		again := h.Encode()
		if !bytes.Equal(again[16:48], b[16:48]) {
			t.Fatalf("%x is encoded as %x", b, again)
		}
	})
}
