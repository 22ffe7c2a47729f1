package archived

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/archive"
)

// A base of a member whose clock is behind is not taken for a state of a time before it was made.
func TestRestoreTimeClockBehind(t *testing.T) {
	n, _ := newNode(t, 11)
	n.base(false)
	n.work(10)
	n.now = n.now.Add(time.Minute)
	n.mark()
	want := n.store.Revision()
	at := n.now.Add(time.Minute)
	n.send()
	n.now = n.now.Add(10 * time.Minute)
	n.work(20)
	n.now = n.now.Add(time.Minute)
	n.mark()
	n.send()
	right := n.now
	n.now = at.Add(-time.Second)
	n.base(false)
	n.now = right.Add(time.Minute)
	n.work(5)
	n.mark()
	n.send()
	a := n.open()
	if r := restoreTo(t, a, Target{Time: at}); r.res.Revision < want ||
		r.res.Revision > n.bases[1].Revision-5 {
		t.Errorf("revision %d, want about %d: the base has %d", r.res.Revision, want,
			n.bases[1].Revision)
	}
}

// Times of a clock that was ahead do not hide the times after it was set right.
func TestRestoreTimeClockAhead(t *testing.T) {
	n, _ := newNode(t, 12)
	n.work(10)
	n.base(false)
	begun := n.now
	n.work(5)
	before := n.store.Revision()
	n.now = begun.Add(time.Hour)
	n.work(5)
	n.now = begun.Add(2 * time.Minute)
	n.send()
	n.now = begun.Add(10 * time.Minute)
	n.work(20)
	want := n.store.Revision()
	n.send()
	n.now = begun.Add(20 * time.Minute)
	n.work(10)
	n.send()
	for at, want := range map[time.Duration]int64{11 * time.Minute: want, time.Minute: before} {
		if r := restoreTo(t, n.open(), Target{Time: begun.Add(at)}); r.res.Revision != want {
			t.Errorf("after %v: revision %d, want %d", at, r.res.Revision, want)
		}
	}
}

// Many objects may be missing at once, and no more of an object is read than its manifest or the
// list of the bucket says.
func TestFetch(t *testing.T) {
	n, _ := newNode(t, 13)
	n.base(false)
	a := n.open()
	var list []wanted
	for i := range 1000 {
		list = append(list, wanted{fmt.Sprintf("part/%032x", i), 1000})
	}
	missing := 0
	err := a.fetchObjects(context.Background(), list, func(f fetched) error {
		var damage *damageError
		if errors.As(f.err, &damage) {
			missing++
		}
		return nil
	})
	if err != nil || missing != len(list) {
		t.Errorf("%d of %d are missing: %v", missing, len(list), err)
	}
	name := n.bases[0].PartsOf(archive.MetaPart)[0].Name
	err = a.fetchObjects(context.Background(), []wanted{{name, a.Parts[name].Size - 1}},
		func(f fetched) error { return f.err })
	var damage *damageError
	if !errors.As(err, &damage) {
		t.Errorf("an object that is too large: %v", err)
	}
}

// A list of records that count is read piece by piece: its size takes no memory.
//
//vigil:norace
func TestLiveTakesNoMemory(t *testing.T) {
	n, _ := newNode(t, 14)
	n.base(false)
	n.work(5)
	w := n.seal.NewLive()
	const revs = 4 << 20
	for i := range int64(revs) {
		n.must(w.Add(kv.Rev{Main: i + 1}))
	}
	part, object, err := w.Seal(revs + 2)
	n.must(err)
	n.put(object.Name, object.Data)
	b := &build{a: n.open(), ctx: context.Background(),
		manifest: &archive.Base{Parts: []archive.Part{part}}}
	live := newLiveSet(b)
	defer live.stop()
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	for i := range int64(revs - 1) {
		if counts, err := live.isCounted(kv.Rev{Main: i + 1}); err != nil || !counts {
			t.Fatal(i, counts, err)
		}
		if i == revs/2 {
			if n := inUse() - before; n > 4*revs {
				t.Errorf("%d bytes for %d records", n, revs)
			}
		}
	}
	if more, err := live.hasRest(); !more || err != nil {
		t.Errorf("nothing is left: %v", err)
	}
}

// What a manifest says is not for the terminal to act on.
func TestHostileManifest(t *testing.T) {
	n, _ := newNode(t, 44)
	n.work(5)
	n.base(false)
	b := n.last
	n.apply()
	n.send()
	b.Index = n.index
	data, err := b.Encode()
	n.must(err)
	data = encodeAgain(t,
		[]byte(strings.Replace(string(data), `"kind": "meta"`, `"kind": "records"`, 1)))
	data = encodeAgain(t,
		[]byte(strings.Replace(string(data), b.Parts[0].Name,
			"part/\\u001b[2J\u009b2J\\n\u202e", 1)))
	n.put(b.Name(), data)
	r := restoreTo(t, n.open(), Target{})
	if len(r.res.Damages) != 1 || r.res.Damages[0].Name != b.Name() ||
		strings.ContainsAny(r.res.Damages[0].String(), "\x1b\u009b\n\u202e") {
		t.Errorf("%q", r.res.Damages)
	}
}

// encodeAgain returns a manifest with the checksum of its content.
func encodeAgain(t *testing.T, data []byte) []byte {
	t.Helper()
	at := bytes.Index(data, []byte(`"checksum": "`)) + len(`"checksum": "`)
	plain := slices.Concat(data[:at], data[at+64:])
	sum := sha256.Sum256(plain)
	return slices.Concat(data[:at], []byte(hex.EncodeToString(sum[:])), data[at+64:])
}
