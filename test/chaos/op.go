package chaos

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// kind is what a client did.
type kind string

const (
	put    kind = "put"
	pair   kind = "pair" // one transaction that puts two keys
	get    kind = "get"
	cas    kind = "cas" // a transaction that puts if the modification revision is as expected, or reads
	del    kind = "delete"
	scan   kind = "scan"   // a linearizable read of all keys
	local  kind = "local"  // a serializable read of all keys
	pinned kind = "pinned" // a serializable read of all keys at a former revision
)

// outcome is the outcome as known to the client.
type outcome string

const (
	acked   outcome = "acknowledged"
	refused outcome = "refused" // an error that says that nothing was done
	unknown outcome = "unknown" // any other error
)

// item is a key with its state in a read or an event.
type item struct {
	Key, Value           string
	Create, Mod, Version int64
}

// op is an operation of a client, with times since the run began.
type op struct {
	Client int
	// Member is the slot of the member that was asked, -1 if the client chose among all, and Run
	// counts the starts of that member's process.
	Member, Run int
	Kind        kind
	Key, Second string
	Value       string // no two writes have the same
	Expect      int64  // of cas: the modification revision; of pinned: the revision
	Call, Ret   time.Duration
	Outcome     outcome
	Err         string

	// The answer of an acknowledged operation.
	Rev     int64 // of the header: where it took effect
	Done    bool  // of cas: it put
	Deleted int64
	Found   []item // what a read found, in order of the keys
}

func (o *op) String() string {
	return fmt.Sprintf("client %d at member %d: %s %s%s=%.20q expect %d, called %v returned %v: %s %s at revision %d, done %t, deleted %d, found %v",
		o.Client, o.Member, o.Kind, o.Key, o.Second, o.Value, o.Expect, o.Call, o.Ret, o.Outcome, o.Err, o.Rev, o.Done, o.Deleted, o.Found)
}

func (i item) String() string {
	return fmt.Sprintf("[%s=%.20q created %d, modified %d, version %d]", i.Key, i.Value, i.Create, i.Mod, i.Version)
}

// keys returns the keys that the operation puts or deletes if it takes effect.
func (o *op) keys() []string {
	switch o.Kind {
	case put, cas, del:
		return []string{o.Key}
	case pair:
		return []string{o.Key, o.Second}
	}
	return nil
}

func (o *op) writes() bool { return o.keys() != nil }

// wrote reports whether an acknowledged operation made a revision.
func (o *op) wrote() bool {
	switch o.Kind {
	case put, pair:
		return true
	case cas:
		return o.Done
	case del:
		return o.Deleted > 0
	}
	return false
}

// linearizable reports whether the operation must see every operation that was answered before it.
func (o *op) linearizable() bool { return o.Kind != local && o.Kind != pinned }

// recorder collects operations of concurrent clients.
type recorder struct {
	mu sync.Mutex
	// all are those since the last take.
	all []op
}

func (r *recorder) add(o op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
}

// take returns the collected operations, in order of the calls.
func (r *recorder) take() []op {
	r.mu.Lock()
	out := r.all
	r.all = nil
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b op) int { return int(a.Call - b.Call) })
	return out
}
