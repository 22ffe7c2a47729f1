package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The keys of locks and elections. A claim of the lock lock/a has a key below lock/a/. Its holder
// writes guarded/lock/a under the condition that the key of its claim exists. The leader of an
// election writes its own key.
const (
	LockPrefix    = "lock/"
	ElectPrefix   = "elect/"
	GuardedPrefix = "guarded/"
)

// The steps of holders and observers.
const (
	Hold     Kind = "hold"     // a lock was granted, or a campaign won
	Guarded  Kind = "guarded"  // a guarded write of the holder of a lock
	Proclaim Kind = "proclaim" // a write of the leader of an election
	Observe  Kind = "observe"  // an observer received a leader
)

// LockOp is a step of a holder of a lock or of the leader of an election.
type LockOp struct {
	Kind Kind
	// Client is the number of the client.
	Client int
	// Name is that of the lock or election, Key that of the claim, Fence its fencing token.
	Name, Key string
	Fence     int64
	Value     string // that was written or observed; see HolderValue
	Rev       int64  // of observe: the revision of the value
	Call, Ret time.Duration
	Outcome   outcome
	Err       string
	// Done: the condition of a guarded write or of a proclamation held.
	Done bool
}

func (o *LockOp) String() string {
	return fmt.Sprintf("%s by client %d of %s as %s with token %d: %q at %d, called %v returned %v: %s %s done %t",
		o.Kind, o.Client, o.Name, o.Key, o.Fence, o.Value, o.Rev, o.Call, o.Ret,
		o.Outcome, o.Err, o.Done)
}

// HolderValue is what a holder writes: no two values are the same.
func HolderValue(fence int64, client, n int) string {
	return fmt.Sprintf("%d %d.%d", fence, client, n)
}

// writer returns the token of the claim that wrote a value.
func writer(value string) (fence int64, ok bool) {
	token, _, _ := strings.Cut(value, " ")
	fence, err := strconv.ParseInt(token, 10, 64)
	return fence, err == nil
}

// CheckLocks compares the steps of holders with the history:
//
//  1. the token of a holder is the create revision of its key, so no two holders have the same one;
//  2. when a guarded write or a proclamation took effect, the claim existed and was the first one,
//     so that a write of an old holder never follows one of a newer holder;
//  3. an acknowledged write is in the history, and one whose condition did not hold is not;
//  4. an observer receives leaders in the order of their tokens, and each was a claim with that
//     value.
func CheckLocks(h *History, ops []LockOp) Violations {
	var v Violations
	written := followClaims(&v, h)
	t := h.Timeline()
	holders := map[[2]string]*LockOp{}
	newest := map[[2]string]*LockOp{} // by client and election
	for n := range ops {
		o := &ops[n]
		if o.Outcome != Acked {
			continue
		}
		switch o.Kind {
		case Hold:
			id := [2]string{o.Name, strconv.FormatInt(o.Fence, 10)}
			if other := holders[id]; other != nil {
				v.Add("two holders have one token: %v; %v", other, o)
			}
			holders[id] = o
			if i, _ := t.state(o.Key, o.Fence); i.Create != o.Fence || i.Mod != o.Fence {
				v.Add("the token is not the create revision of the claim, %v was there: %v", i, o)
			}
		case Guarded, Proclaim:
			if rev := written[o.Value]; o.Done != (rev != 0) {
				v.Add("the answer is wrong, the value was written at revision %d: %v", rev, o)
			}
		case Observe:
			if i, _ := t.state(o.Key, o.Rev); i.Create != o.Fence || i.Mod != o.Rev ||
				i.Value != o.Value {
				v.Add("an observer received what was not there, %v was: %v", i, o)
			}
			id := [2]string{strconv.Itoa(o.Client), o.Name}
			if last := newest[id]; last != nil &&
				(o.Fence < last.Fence || o.Fence == last.Fence && o.Rev < last.Rev) {
				v.Add("an observer went back: %v after %v", o, last)
			}
			newest[id] = o
		}
	}
	return v
}

// followClaims checks that holders wrote only while their claim was the first one, and returns the
// revisions of the values.
func followClaims(v *Violations, h *History) map[string]int64 {
	written := map[string]int64{}
	claims := map[string]int64{} // the create revisions by key
	for n, r := range h.Revs {
		rev := h.Base + 1 + int64(n)
		for _, e := range r.Events {
			name, guarded := strings.CutPrefix(e.Key, GuardedPrefix)
			if !guarded && !strings.HasPrefix(e.Key, LockPrefix) &&
				!strings.HasPrefix(e.Key, ElectPrefix) {
				continue
			}
			if e.Deleted {
				delete(claims, e.Key)
				continue
			}
			if !guarded {
				name = e.Key[:strings.LastIndexByte(e.Key, '/')]
			}
			if fence, ok := writer(e.Value); ok {
				if written[e.Value] != 0 {
					v.Add("revisions %d and %d have the same value: %v", written[e.Value], rev, e)
				}
				written[e.Value] = rev
				if !guarded && e.Create != fence {
					v.Add("an old holder wrote: %s with token %d created another claim: %v",
						name, fence, e)
				}
				checkFirst(v, claims, name, fence, e)
			}
			if !guarded {
				claims[e.Key] = e.Create
			}
		}
	}
	return written
}

// checkFirst checks that the writer of an event was the first claim.
func checkFirst(v *Violations, claims map[string]int64, name string, fence int64, e Event) {
	var earlier []string
	there := false
	for other, create := range claims {
		switch {
		case !strings.HasPrefix(other, name+"/"):
		case create == fence:
			there = true
		case create < fence:
			earlier = append(earlier, other)
		}
	}
	slices.Sort(earlier)
	switch {
	case !there:
		v.Add("an old holder wrote: the claim of %s with token %d was not there: %v",
			name, fence, e)
	case len(earlier) > 0:
		v.Add("two holders: that of %s with token %d wrote while the earlier claims %v were there: %v", name, fence, earlier, e)
	}
}
