package metas

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"vigil/internal/store/history/format"
)

// listed returns records as a map from names to values.
func listed(t *testing.T, records []format.Meta) map[string]string {
	t.Helper()
	out := map[string]string{}
	for i := range records {
		m := &records[i]
		if _, twice := out[m.Name()]; twice || m.Deleted {
			t.Fatalf("record %+v of %d", m, len(records))
		}
		out[m.Name()] = string(m.Value)
	}
	return out
}

// The State and the Index against maps, with keys and values around the lengths at which they are
// kept in another way.
func TestAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	text := func(n int) []byte { return bytes.Repeat([]byte{byte(rng.IntN(3))}, rng.IntN(n)) }
	s, x := NewState(), NewIndex()
	now, committed := map[string]string{}, map[string]string{}
	places, dead := map[string]place{}, map[uint64]int64{}
	var open []format.Meta
	id := uint64(1)
	for i := range 10_000 {
		m := format.Meta{Bucket: byte(1 + rng.IntN(2)), Key: text(20), Deleted: rng.IntN(3) == 0}
		if !m.Deleted {
			m.Value = text(32)
		}
		open = append(open, format.Meta{Bucket: m.Bucket, Key: bytes.Clone(m.Key),
			Value: bytes.Clone(m.Value), Deleted: m.Deleted})
		if now[m.Name()] = string(m.Value); m.Deleted {
			delete(now, m.Name())
		}
		s.Apply(m)
		clear(m.Key) // both were copied
		clear(m.Value)
		if rng.IntN(20) == 0 {
			all, kept := s.All(), s.Committed()
			s.Commit()
			s.Apply(format.Meta{Bucket: 3, Key: []byte("later"), Value: []byte("on")})
			s.Apply(format.Meta{Bucket: 3, Key: []byte("later"), Deleted: true})
			s.Commit()
			if a, k := listed(t, all), listed(t, kept); !maps.Equal(a, now) ||
				!maps.Equal(k, committed) {
				t.Fatalf("seed %d, step %d: %q of which %q are committed, want %q and %q", seed, i,
					a, k, now, committed)
			}
			committed = maps.Clone(now)
			for i := range open {
				m := &open[i]
				size := int64(format.RecordHeaderSize + format.MetaSize(m))
				if old, ok := places[m.Name()]; ok {
					dead[old.id] += old.size
				}
				if places[m.Name()] = (place{id, size}); m.Deleted {
					dead[id] += size
					delete(places, m.Name())
				}
				x.Note(id, m)
			}
			open = open[:0]
			id += uint64(rng.IntN(2))
		}
		if rng.IntN(100) != 0 {
			continue
		}
		got, last := map[string]string{}, ""
		for bucket := range byte(4) {
			first := true
			for k, v := range s.Bucket(bucket) {
				if !first && string(k) <= last {
					t.Fatalf("seed %d, step %d: key %q after %q", seed, i, k, last)
				}
				first, last = false, string(k)
				got[string(bucket)+last] = string(v)
			}
		}
		if !maps.Equal(got, now) {
			t.Fatalf("seed %d, step %d: %q, want %q", seed, i, got, now)
		}
		for bucket := range byte(3) {
			for n := range 20 {
				key := bytes.Repeat([]byte{byte(rng.IntN(3))}, n)
				got, ok := x.Newest(bucket, key)
				want, exists := places[string(bucket)+string(key)]
				if got != want.id || ok != exists {
					t.Fatalf("seed %d, step %d: %q of bucket %d is in %d, %v, want %+v", seed, i,
						key, bucket, got, ok, want)
				}
			}
		}
		first := uint64(rng.Int64N(int64(id) + 1))
		end := first + uint64(rng.IntN(5))
		sum := int64(0)
		for n := first; n <= end; n++ {
			sum += dead[n]
		}
		if got := x.DeadIn(first, end); got != sum {
			t.Fatalf("seed %d, step %d: %d bytes are dead in %d to %d, want %d", seed, i, got,
				first, end, sum)
		}
	}
}

// Records of a few bytes take no memory of their own.
func TestSmallRecordsAllocateNothing(t *testing.T) {
	s, x := NewState(), NewIndex()
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%08d", i)
	}
	round := func() {
		for _, k := range keys {
			m := format.Meta{Bucket: 'l', Key: k, Value: k}
			s.Apply(m)
			s.Commit()
			x.Note(1, &m)
		}
	}
	round()
	if n := testing.AllocsPerRun(10, round); n != 0 {
		t.Errorf("%v allocations for %d records", n, len(keys))
	}
	if n := len(s.All()); n != len(keys) {
		t.Errorf("%d records, want %d", n, len(keys))
	}
}
