package dumpfile

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"vigil/client"
)

// smallDump returns a dump with two keys.
func smallDump(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, NewHeader(0xc1, 9, 2, "a"))
	err = errors.Join(err,
		w.Lease(Lease{0x1234, 60, 41}),
		w.Key(client.KeyValue{Key: "a<\u2028", Value: []byte("text\n"), CreateRevision: 2,
			ModRevision: 7, Version: 3, Lease: 0x1234}),
		w.Key(client.KeyValue{Key: "a\xff", Value: []byte{0, 0xfe}, CreateRevision: 9,
			ModRevision: 9, Version: 1}),
		w.End())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll reads a dump to its end.
func readAll(b []byte) (keys []Key, leases []Lease, err error) {
	r, err := NewReader(bytes.NewReader(b))
	for err == nil {
		var k *Key
		var l *Lease
		k, l, err = r.Next()
		switch {
		case k != nil:
			keys = append(keys, *k)
		case l != nil:
			leases = append(leases, *l)
		case err == nil:
			return keys, leases, nil
		}
	}
	return keys, leases, err
}

func TestDumpFile(t *testing.T) {
	whole := smallDump(t)
	keys, leases, err := readAll(whole)
	if err != nil || len(keys) != 2 || len(leases) != 1 || leases[0] != (Lease{0x1234, 60, 41}) {
		t.Fatalf("%v %v %v", keys, leases, err)
	}
	if k := keys[0]; k.Key != "a<\u2028" || k.Value != "text\n" || k.Lease != 0x1234 ||
		k.ModRevision != 7 || k.CreateRevision != 2 || k.Version != 3 {
		t.Errorf("%+v", k)
	}
	if k := keys[1]; k.Key != "a\xff" || k.Value != "\x00\xfe" || k.Lease != 0 {
		t.Errorf("%+v", k)
	}
	// Truncated anywhere after the header it is not whole.
	head := bytes.IndexByte(whole, '\n') + 1
	for n := head; n < len(whole); n++ {
		if _, _, err := readAll(whole[:n]); !errors.Is(err, ErrNoEnd) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	// A change anywhere between header and trailer is rejected.
	for n := head; n < bytes.LastIndexByte(whole[:len(whole)-1], '\n'); n++ {
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		if _, _, err := readAll(changed); err == nil {
			t.Fatalf("changed at %d: %q", n, changed)
		}
	}
}

func TestBadDumps(t *testing.T) {
	const head = `{"vigil_dump":1,"cluster_id":"c","revision":1,"prefixes":[""],"keys":1}` + "\n"
	for text, want := range map[string]string{
		"":                             "this is not a dump",
		"{}\n":                         "this is not a dump",
		"hello\n":                      "this is not a dump",
		`{"vigil_dump":2}` + "\n":      "has version 2",
		head:                           "not whole",
		head + "\n":                    "line 2: ",
		head + `{"key":"a"}` + "\n":    "line 2: neither a key",
		head + `{"x":1}` + "\n":        "line 2: json: unknown field",
		head + `{"lease":"x"}` + "\n":  "line 2: ",
		head + `{"lease":"0"}` + "\n":  "line 2: neither",
		head + `{"key":5}` + "\n":      "a key or value is a string",
		head + `{"end":true}` + "\n":   "the dump was changed",
		head + `{"key":"","value":""}`: "not whole",
		head + `{"key":"b","value":""}` + "\n" + `{"key":"a","value":""}` +
			"\n": "line 3: the key \"a\" is not after",
		head + `{"lease":"1","ttl":-1}` + "\n": "TTL of -1",
		string(smallDump(t)) +
			"x": "something follows",
	} {
		if _, _, err := readAll([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzDump(f *testing.F) {
	f.Add(smallDump(f))
	f.Add([]byte(`{"vigil_dump":1}` + "\n" + `{"key":{"base64":"/w=="},"value":"x"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, leases, err := readAll(b)
		if err != nil {
			return
		}
		var again bytes.Buffer
		w := newWriter(&again)
		for _, l := range leases {
			err = errors.Join(err, w.Lease(l))
		}
		for _, k := range keys {
			err = errors.Join(err,
				w.Key(client.KeyValue{Key: string(k.Key), Value: []byte(k.Value),
					Lease: client.LeaseID(k.Lease)}))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestWriterRejects: keys that no reader would accept are not written.
func TestWriterRejects(t *testing.T) {
	for _, keys := range [][]string{{""}, {"a", "a"}, {"b", "a"}} {
		w, err := NewWriter(io.Discard, NewHeader(1, 9, int64(len(keys)), ""))
		for _, k := range keys {
			if err == nil {
				err = w.Key(client.KeyValue{Key: k})
			}
		}
		if err == nil || !strings.Contains(err.Error(), "not after") {
			t.Errorf("%q: %v", keys, err)
		}
	}
}
