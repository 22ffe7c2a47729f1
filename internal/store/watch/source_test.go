package watch

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
)

// op is a put of key, or its deletion.
type op struct {
	key, value string
	del        bool
}

// memSource is a simple Source in memory.
type memSource struct {
	mu struct {
		sync.Mutex
		revs    [][]kv.Event // revision 2 and up
		keys    map[string][]*mvccpb.KeyValue
		compact int64
		fail    error // what Events and Get answer
		onRead  func()
	}
}

func newMemSource() *memSource {
	s := &memSource{}
	s.mu.keys = map[string][]*mvccpb.KeyValue{}
	return s
}

func (s *memSource) revision() int64 { return int64(len(s.mu.revs)) + 1 }

func (s *memSource) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision()
}

func (s *memSource) CompactRevision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.compact
}

func (s *memSource) compact(rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.compact = rev
}

// at returns the pair of key at rev, nil if there is none. mu is held.
func (s *memSource) at(key string, rev int64) *mvccpb.KeyValue {
	versions := s.mu.keys[key]
	for _, v := range slices.Backward(versions) {
		if v.ModRevision <= rev {
			if v.Version == 0 {
				return nil
			}
			return v
		}
	}
	return nil
}

// commit makes one revision of the operations and returns it, without the deletions of missing keys.
func (s *memSource) commit(ops ...op) (int64, []kv.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev := s.revision() + 1
	var events []kv.Event
	for _, o := range ops {
		was := s.at(o.key, rev)
		now := &mvccpb.KeyValue{Key: []byte(o.key), ModRevision: rev}
		if o.del {
			if was == nil {
				continue
			}
		} else {
			now.Value, now.CreateRevision, now.Version = []byte(o.value), rev, 1
			if was != nil {
				now.CreateRevision, now.Version = was.CreateRevision, was.Version+1
			}
		}
		encoded, err := proto.Marshal(now)
		if err != nil {
			panic(err)
		}
		s.mu.keys[o.key] = append(s.mu.keys[o.key], now)
		events = append(events, kv.Event{
			Rev: kv.Rev{Main: rev, Sub: int64(len(events))}, Delete: o.del,
			Create: now.Version == 1, Key: keyIn(encoded, o.key), KV: encoded,
		})
	}
	if len(events) == 0 {
		return rev - 1, nil
	}
	s.mu.revs = append(s.mu.revs, events)
	return rev, events
}

// keyIn returns the part of encoded that is the key.
func keyIn(encoded []byte, key string) []byte {
	i := bytes.Index(encoded, []byte(key))
	return encoded[i : i+len(key)]
}

// EventsIn overwrites the events that it returned last in the same buffer.
func (s *memSource) EventsIn(buf *kv.EventBuffer, from, to int64, maxBytes int) ([]kv.Event, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.onRead != nil {
		s.mu.onRead()
	}
	if s.mu.fail != nil {
		return nil, 0, s.mu.fail
	}
	if from < s.mu.compact {
		return nil, 0, &kv.CompactedError{CompactRevision: s.mu.compact}
	}
	for _, e := range buf.Events {
		for i := range e.KV {
			e.KV[i] = 0xee
		}
	}
	clear(buf.Events)
	events := buf.Events[:0]
	n, rev := 0, from
	for ; rev <= to; rev++ {
		if rev < 2 {
			continue
		}
		size := 0
		for _, e := range s.mu.revs[rev-2] {
			size += len(e.KV)
		}
		if n > 0 && n+size > maxBytes {
			break
		}
		n += size
		for _, e := range s.mu.revs[rev-2] {
			e.KV = bytes.Clone(e.KV)
			e.Key = keyIn(e.KV, string(e.Key))
			events = append(events, e)
		}
	}
	buf.Events = events
	return events, rev, nil
}

func (s *memSource) Get(key []byte, rev int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.fail != nil {
		return nil, s.mu.fail
	}
	if rev < s.mu.compact {
		return nil, &kv.CompactedError{CompactRevision: s.mu.compact}
	}
	v := s.at(string(key), rev)
	if v == nil {
		return nil, nil
	}
	return proto.Marshal(v)
}

func decode(t testing.TB, encoded []byte) *mvccpb.Event {
	t.Helper()
	e := &mvccpb.Event{}
	if err := proto.Unmarshal(encoded, e); err != nil {
		t.Fatalf("an event does not decode: %v", err)
	}
	return e
}

// show prints a response on one line.
func show(t testing.TB, r Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "watch %d rev=%d", r.WatchID, r.Revision)
	for _, f := range []struct {
		on   bool
		name string
	}{{r.Created, "created"}, {r.Canceled, "canceled"}, {r.Fragment, "fragment"}} {
		if f.on {
			b.WriteString(" " + f.name)
		}
	}
	if r.CompactRevision != 0 {
		fmt.Fprintf(&b, " compact=%d", r.CompactRevision)
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, " reason=%q", r.Reason)
	}
	for i, encoded := range r.Events {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		e := decode(t, encoded)
		switch {
		case e.Type == mvccpb.Event_DELETE:
			fmt.Fprintf(&b, "%sdel %s@%d", sep, e.Kv.Key, e.Kv.ModRevision)
		case e.Kv.CreateRevision == e.Kv.ModRevision:
			fmt.Fprintf(&b, "%screate %s=%s@%d", sep, e.Kv.Key, short(e.Kv.Value), e.Kv.ModRevision)
		default:
			fmt.Fprintf(&b, "%sput %s=%s@%d", sep, e.Kv.Key, short(e.Kv.Value), e.Kv.ModRevision)
		}
		if p := e.PrevKv; p != nil {
			fmt.Fprintf(&b, " (was %s@%d)", short(p.Value), p.ModRevision)
		}
	}
	return b.String()
}

func short(v []byte) string {
	if len(v) > 16 {
		return fmt.Sprintf("<%d bytes>", len(v))
	}
	return string(v)
}
