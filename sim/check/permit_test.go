package check

import (
	"testing"
	"time"
)

// TestCheckPermits: what certainly happened without a permission, or was refused with one, is a
// violation.
func TestCheckPermits(t *testing.T) {
	spans := []PermitSpan{{"u", true, 10 * time.Second, 20 * time.Second, 0},
		{"u", false, 21 * time.Second, 30 * time.Second, 2}}
	h := &History{Base: 1, Start: map[string]Item{}, Revs: []Revision{
		{Seen: 25 * time.Second,
			Events: []Event{{Item: Item{Key: "u/0", Value: "late", Mod: 2}},
				{Item: Item{Key: "u/1", Value: "w", Mod: 2}}}},
		{Seen: 29 * time.Second, Events: []Event{{Item: Item{Key: "u/0", Value: "later", Mod: 3}}}},
		{Seen: 31 * time.Second, Events: []Event{{Item: Item{Key: "u/0", Value: "again", Mod: 4}}}},
		{Seen: 32 * time.Second, Events: []Event{{Item: Item{Key: "u/0", Value: "twice", Mod: 5}}}},
		{Seen: 33 * time.Second, Events: []Event{{Item: Item{Key: "u/0", Value: "twice", Mod: 6}}}},
	}}
	for _, c := range []struct {
		name      string
		call, ret time.Duration
		value     string
		outcome   outcome
		bad       int
	}{
		{"a read with the permission", 11, 12, "", Acked, 0},
		{"a read without it", 22, 23, "", Acked, 1},
		{"a write without it", 22, 23, "w", Acked, 1},
		{"while it ends", 19, 23, "w", Acked, 0},
		{"while it is given", 29, 31, "again", Acked, 0},
		{"refused without it", 22, 23, "never", Refused, 0},
		{"refused with it", 11, 12, "never", Refused, 1},
		{"refused while it ends", 19, 23, "never", Refused, 0},
		{"an unknown outcome with an effect", 22, 33, "late", Unknown, 1},
		{"an unknown outcome with an effect, called before", 20, 33, "late", Unknown, 0},
		{"an unknown outcome without effect", 22, 33, "never", Unknown, 0},
		{"called before, and written at a revision without it", 19, 33, "later", Unknown, 1},
		{"called before, and written at a revision when it was perhaps given again", 19, 33,
			"again", Acked, 0},
		{"an acknowledged write that is lost", 11, 12, "never", Acked, 1},
		{"a write that was made twice", 25, 31, "twice", Unknown, 1},
		{"refused with an effect", 19, 33, "late", Refused, 1},
	} {
		a := Access{User: "u", Value: c.value, Call: c.call * time.Second, Ret: c.ret * time.Second,
			Outcome: c.outcome}
		if v := CheckPermits(h,
			[]Access{a, {User: "other", Call: 22 * time.Second, Ret: 23 * time.Second,
				Outcome: Acked}}, spans); len(v) != c.bad {
			t.Errorf("%s: %q", c.name, v)
		}
	}
}
