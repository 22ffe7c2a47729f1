package check

import (
	"strings"
	"testing"
	"time"
)

// lockRecord is what clients saw of two holders of a lock, one after the other, and of a leader who
// proclaims.
func lockRecord() (*History, []LockOp) {
	const s = time.Second
	put := func(key, value string, create, mod, version int64) Event {
		return Event{Item: Item{key, value, create, mod, version}}
	}
	first, second := HolderValue(2, 0, 1), HolderValue(3, 1, 1)
	wins := HolderValue(7, 0, 2)
	h := &History{Base: 1, Start: map[string]Item{}, Revs: []Revision{
		{2 * s, []Event{put("lock/a/1", "", 2, 2, 1)}},
		{3 * s, []Event{put("lock/a/2", "", 3, 3, 1)}},
		{4 * s, []Event{put("guarded/lock/a", first, 4, 4, 1)}},
		{5 * s, []Event{{Item{Key: "lock/a/1", Mod: 5}, true}}},
		{6 * s, []Event{put("guarded/lock/a", second, 4, 6, 2)}},
		{7 * s, []Event{put("elect/a/1", "candidate", 7, 7, 1)}},
		{8 * s, []Event{put("elect/a/1", wins, 7, 8, 2)}},
	}}
	return h, []LockOp{
		{Kind: Hold, Name: "lock/a", Key: "lock/a/1", Fence: 2, Outcome: Acked},
		{Kind: Guarded, Name: "lock/a", Key: "lock/a/1", Fence: 2, Value: first,
			Outcome: Acked, Done: true},
		{Kind: Hold, Client: 1, Name: "lock/a", Key: "lock/a/2", Fence: 3, Outcome: Acked},
		{Kind: Guarded, Name: "lock/a", Key: "lock/a/1", Fence: 2, Value: HolderValue(2, 0, 9),
			Outcome: Acked},
		{Kind: Guarded, Client: 1, Name: "lock/a", Key: "lock/a/2", Fence: 3, Value: second,
			Outcome: Acked, Done: true},
		{Kind: Observe, Client: 5, Name: "elect/a", Key: "elect/a/1", Fence: 7, Value: "candidate",
			Rev: 7, Outcome: Acked},
		{Kind: Proclaim, Name: "elect/a", Key: "elect/a/1", Fence: 7, Value: wins,
			Outcome: Acked, Done: true},
		{Kind: Observe, Client: 5, Name: "elect/a", Key: "elect/a/1", Fence: 7, Value: wins, Rev: 8,
			Outcome: Acked},
	}
}

func TestLocks(t *testing.T) {
	tests := []struct {
		name, want string
		tamper     func(h *History, ops []LockOp)
	}{
		{"nothing", "", func(*History, []LockOp) {}},
		{"one token twice", "two holders have one token",
			func(h *History, ops []LockOp) { ops[2].Key, ops[2].Fence = "lock/a/1", 2 }},
		{"the token of another revision", "not the create revision",
			func(h *History, ops []LockOp) { ops[2].Fence = 4 }},
		{"granted too early", "two holders", func(h *History, ops []LockOp) {
			h.Revs[3], h.Revs[4] = h.Revs[4], h.Revs[3]
			h.Revs[3].Events[0].Mod, h.Revs[4].Events[0].Mod = 5, 6
		}},
		{"an old holder", "an old holder wrote", func(h *History, ops []LockOp) {
			old := HolderValue(2, 0, 9)
			h.Revs = append(h.Revs,
				Revision{9 * time.Second, []Event{{Item: Item{"guarded/lock/a", old, 4, 9, 3}}}})
			ops[3].Done = true
		}},
		{"a deposed leader", "an old holder wrote", func(h *History, ops []LockOp) {
			h.at(8).Events[0].Create, h.at(8).Events[0].Version = 8, 1
			h.at(7).Events[0] = Event{Item{Key: "elect/a/1", Mod: 7}, true}
		}},
		{"a lost write", "the answer is wrong",
			func(h *History, ops []LockOp) { h.at(6).Events[0].Value = "" }},
		{"a rejected write", "the answer is wrong",
			func(h *History, ops []LockOp) { ops[4].Done = false }},
		{"an observer of nothing", "what was not there",
			func(h *History, ops []LockOp) { ops[5].Value = "other" }},
		{"an observer that goes back", "went back",
			func(h *History, ops []LockOp) { ops[5], ops[7] = ops[7], ops[5] }},
		{"an observer that repeats", "", func(h *History, ops []LockOp) { ops[5] = ops[7] }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h, ops := lockRecord()
			test.tamper(h, ops)
			v := strings.Join(CheckLocks(h, ops), "\n")
			if test.want == "" && v != "" || !strings.Contains(v, test.want) {
				t.Errorf("want %q:\n%s", test.want, v)
			}
		})
	}
}
