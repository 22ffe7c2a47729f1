package audit

import (
	"slices"
	"testing"

	"vigil/internal/kv"
)

func TestJudge(t *testing.T) {
	is := func(id uint64, hash uint32) finding { return finding{id, answer{kindHash, 9, 3, hash}} }
	short := func(id uint64,
		rev int64) finding {
		return finding{id, answer{kind: kindShort, revision: rev}}
	}
	none := func(id uint64) finding { return finding{id: id} }
	three, five := []uint64{1, 2, 3}, []uint64{1, 2, 3, 4, 5}
	for _, c := range []struct {
		name            string
		voters, members []uint64
		found           []finding
		decided         bool
		differ          []uint64
		unanimous       bool
	}{
		{"all alike", three, three, []finding{is(1, 7), is(2, 7), is(3, 7)}, true, nil, true},
		{"one differs", three, three, []finding{is(1, 7), is(2, 8), is(3, 7)}, true,
			[]uint64{2}, false},
		{"the asker differs", three, three, []finding{is(1, 8), is(2, 7), is(3, 7)}, true,
			[]uint64{1}, false},
		{"one lacks revisions", three, three, []finding{is(1, 7), short(2, 8), is(3, 7)}, true,
			[]uint64{2}, false},
		{"two lack the same", three, three, []finding{is(1, 7), short(2, 8), short(3, 8)}, true,
			[]uint64{1}, false},
		{"one is silent", three, three, []finding{is(1, 7), none(2), is(3, 7)}, true, nil, false},
		{"one lags", three, three, []finding{is(1, 7), {2, answer{kind: kindLags}}, is(3, 7)},
			true, nil, false},
		{"one has compacted", three, three,
			[]finding{is(1, 7), {2, answer{kind: kindCompacted, compact: 8}}, is(3, 7)},
			true, nil, false},
		{"nobody answers", three, three, []finding{is(1, 7)}, false, nil, false},
		{"three different", three, three, []finding{is(1, 7), is(2, 8), is(3, 9)},
			false, three, false},
		{"two of three differ, one is silent", three, three, []finding{is(1, 7), is(2, 8)}, false,
			[]uint64{1, 2}, false},
		{"two members", []uint64{1, 2}, []uint64{1, 2}, []finding{is(1, 7), is(2, 8)}, false,
			[]uint64{1, 2}, false},
		{"two against one of five", five, five, []finding{is(1, 7), is(2, 7), is(3, 8)}, false,
			[]uint64{1, 2, 3}, false},
		{"three against two of five", five, five,
			[]finding{is(1, 7), is(2, 8), is(3, 7), is(4, 8), is(5, 7)}, true,
			[]uint64{2, 4}, false},
		{"learners have no say", []uint64{1}, three, []finding{is(1, 7), is(2, 8), is(3, 8)}, true,
			[]uint64{2, 3}, false},
		{"a learner differs from two", []uint64{1, 2}, three,
			[]finding{is(1, 7), is(2, 7), is(3, 8)}, true, []uint64{3}, false},
		{"one that is no member", three, three, []finding{is(1, 7), is(2, 7), is(9, 8)},
			true, nil, false},
		{"alone", []uint64{1}, []uint64{1}, []finding{is(1, 7)}, true, nil, true},
	} {
		v := judge(c.voters, c.members, c.found)
		var differ []uint64
		for _, f := range v.differ {
			differ = append(differ, f.id)
		}
		if v.decided != c.decided || !slices.Equal(differ, c.differ) ||
			v.unanimous() != c.unanimous {
			t.Errorf("%s: %+v", c.name, v)
		}
		for _, id := range c.members {
			if v.wrong(id) != (c.decided && slices.Contains(c.differ, id)) {
				t.Errorf("%s: member %d", c.name, id)
			}
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(answer{kindHash, 1, 2, 3}.encode(position{4, 5}))
	f.Add(encodeCompactions([]kv.HashResult{{Hash: 1, HashRevision: 2, CompactRevision: -1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, at, err := decodeAnswer(b); err == nil && string(a.encode(at)) != string(b) {
			t.Errorf("%x is %+v, which is %x", b, a, a.encode(at))
		}
		if l, err := decodeCompactions(b); err == nil && string(encodeCompactions(l)) != string(b) {
			t.Errorf("%x is %+v, which is %x", b, l, encodeCompactions(l))
		}
	})
}
