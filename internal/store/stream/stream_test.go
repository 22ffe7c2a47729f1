package stream

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/memfs"
)

// Every single bit of a small stream matters.
func TestFlippedBitsOfAStream(t *testing.T) {
	at := history.Applied{Term: 2, Index: 9}
	l, err := history.Create(history.Options{FS: memfs.New(), Dir: "history", ClusterID: 1, MemberID: 2}, history.Applied{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for rev := int64(2); rev < 7; rev++ {
		if _, err := l.AppendKV(kv.Rev{Main: rev}, rev == 5, fmt.Appendf(nil, "record %d", rev)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Commit(at); err != nil {
		t.Fatal(err)
	}
	sc, err := l.View().Hold(kv.Rev{Main: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer sc.Close()
	body, err := io.ReadAll(NewEncoder(sc, []history.Meta{{Bucket: 'm', Key: []byte("k"), Value: []byte("v")}}))
	if err != nil {
		t.Fatal(err)
	}
	if err := drain(body); err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(body) {
		b := bytes.Clone(body)
		b[i/8] ^= 1 << (i % 8)
		if drain(b) == nil {
			t.Fatalf("bit %d of %d does not matter", i, 8*len(body))
		}
	}
	for n := range len(body) {
		if drain(body[:n]) == nil {
			t.Fatalf("%d of %d bytes are enough", n, len(body))
		}
	}
}

// drain decodes a stream and returns nil if it is complete.
func drain(b []byte) error {
	d := NewDecoder(bytes.NewReader(b))
	for {
		switch _, err := d.Next(); err {
		case io.EOF:
			return nil
		case nil:
		default:
			return err
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte{itemPut, 2, 0, 3, 'a', 'b', 'c', itemMeta, 'm', 1, 1, 'k', 'v', itemEnd})
	f.Add([]byte{itemTombstone, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = drain(b)
	})
}
