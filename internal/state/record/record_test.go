package record

import (
	"encoding/binary"
	"testing"
)

func TestReader(t *testing.T) {
	b := binary.AppendVarint(binary.AppendUvarint([]byte{7}, 300), -300)
	b = append(AppendBytes(AppendBytes(b, "text"), []byte(nil)), "rest"...)
	r := NewReader(b)
	if v := r.Byte(); v != 7 {
		t.Errorf("byte %d", v)
	}
	if v := r.Uvarint(); v != 300 {
		t.Errorf("uvarint %d", v)
	}
	if v := r.Varint(); v != -300 {
		t.Errorf("varint %d", v)
	}
	if v := r.Text(); v != "text" {
		t.Errorf("text %q", v)
	}
	if v := r.Text(); v != "" {
		t.Errorf("empty text %q", v)
	}
	if r.Complete() {
		t.Error("complete before the rest")
	}
	if v := r.Rest(); v != "rest" || !r.Complete() {
		t.Errorf("rest %q, %+v", v, r)
	}
	for name, read := range map[string]func(*Reader){
		"byte":        func(r *Reader) { r.Byte() },
		"uvarint":     func(r *Reader) { r.Uvarint() },
		"text":        func(r *Reader) { r.Text() },
		"fail":        func(r *Reader) { r.Fail() },
		"long form":   func(r *Reader) { r.rest = []byte{0x80, 0x00}; r.Uvarint() },
		"cut integer": func(r *Reader) { r.rest = []byte{0x80}; r.Varint() },
		"cut text":    func(r *Reader) { r.rest = []byte{2, 'a'}; r.Text() },
	} {
		r := NewReader(nil)
		if read(r); r.Complete() || r.Text() != "" || r.Byte() != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
