package history

import (
	"bytes"
	"hash/crc32"
	"testing"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

func FuzzRecord(f *testing.F) {
	b := append(make([]byte, format.RecordHeaderSize), "data"...)
	format.PutRecordHeader(b, format.KindPut, kv.Rev{Main: 3, Sub: 1})
	f.Add(b)
	m := Meta{Bucket: 1, Key: []byte("key"), Value: []byte("value")}
	b = make([]byte, format.RecordHeaderSize+format.MetaSize(&m))
	format.PutMeta(b[format.RecordHeaderSize:], &m)
	format.PutRecordHeader(b, format.KindMeta, kv.Rev{})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, size, err := format.DecodeRecord(b)
		if err != nil {
			return
		}
		again := append(make([]byte, format.RecordHeaderSize), r.Data...)
		format.PutRecordHeader(again, r.Kind, r.Rev)
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

// FuzzFooter takes the tables and the footer of a sealed segment and mends the footer's checksum.
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
		format.LE.PutUint32(end[format.FooterSize-4:], crc32.Update(7, format.Castagnoli, end[:format.FooterSize-4]))
		foot, err := format.DecodeFooter(end, 7, int64(len(b)))
		if err != nil {
			return
		}
		from := int64(foot.BodyEnd)
		table, metas := foot.Tables(b[from : from+foot.TableSize()])
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
		s := &sealed{path: "fuzz", data: b, foot: foot, seed: 7, table: table, metas: metas}
		s.refs.Store(1)
		_, _ = s.read(int64(format.LE.Uint32(b[format.HeaderSize:])), format.RecordHeaderSize, nil)
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
