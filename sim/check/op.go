package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Prefix is that of the keys of the operations. The other keys of a history belong to other work,
// which has checks of its own.
const Prefix = "k/"

// Kind is what a client did.
type Kind string

const (
	Put  Kind = "put"
	Pair Kind = "pair" // one transaction that puts two keys
	Get  Kind = "get"
	// a transaction that puts if the modification revision is as expected, or reads
	Cas    Kind = "cas"
	Del    Kind = "delete"
	Scan   Kind = "scan"   // a linearizable read of all keys
	Local  Kind = "local"  // a serializable read of all keys
	Pinned Kind = "pinned" // a serializable read of all keys at a former revision
	Page   Kind = "page"   // a read of a range with options
	Mirror Kind = "mirror" // the state of a mirror of all keys
)

// Strong draws the kind of an operation whose answer must be linearizable.
func Strong(rng *rand.Rand) Kind {
	switch n := rng.IntN(100); {
	case n < 30:
		return Put
	case n < 58:
		return Get
	case n < 78:
		return Cas
	case n < 83:
		return Del
	case n < 93:
		return Pair
	}
	return Scan
}

// Weak draws the kind of a serializable read.
func Weak(rng *rand.Rand) Kind {
	if rng.IntN(4) == 0 {
		return Pinned
	}
	return Local
}

// outcome is the outcome as known to the client.
type outcome string

const (
	Acked   outcome = "acknowledged"
	Refused outcome = "refused" // an error that says that nothing was done
	Unknown outcome = "unknown" // any other error
)

// Item is a key with its state in a read or an event.
type Item struct {
	Key, Value           string
	Create, Mod, Version int64
}

// Op is an operation of a client, with times since the run began.
type Op struct {
	Client int
	// Member is the slot of the member that was asked, -1 if the client chose among all, and Run
	// counts the starts of that member's process.
	Member, Run int
	Kind        Kind
	Key, Second string
	Value       string   // no two writes have the same
	Expect      int64    // of cas: the modification revision; of pinned: the revision
	Page        *Listing `json:",omitempty"`
	Call, Ret   time.Duration
	Outcome     outcome
	Err         string

	// The answer of an acknowledged operation.
	Rev     int64 // of the header: where it took effect
	Done    bool  // of cas: it put
	Deleted int64
	Found   []Item // what a read found, in order of the keys
}

func (o *Op) String() string {
	return fmt.Sprintf("client %d at member %d: %s %s%s=%.20q expect %d, called %v returned %v: %s %s at revision %d, done %t, deleted %d, found %v%v",
		o.Client, o.Member, o.Kind, o.Key, o.Second, o.Value, o.Expect, o.Call, o.Ret, o.Outcome,
		o.Err, o.Rev, o.Done, o.Deleted, o.Found, o.Page)
}

func (i Item) String() string {
	return fmt.Sprintf("[%s=%.20q created %d, modified %d, version %d]", i.Key, i.Value, i.Create,
		i.Mod, i.Version)
}

// Keys returns the keys that the operation puts or deletes if it takes effect.
func (o *Op) Keys() []string {
	switch o.Kind {
	case Put, Cas, Del:
		return []string{o.Key}
	case Pair:
		return []string{o.Key, o.Second}
	}
	return nil
}

func (o *Op) Writes() bool { return o.Keys() != nil }

// Wrote reports whether an acknowledged operation made a revision.
func (o *Op) Wrote() bool {
	switch o.Kind {
	case Put, Pair:
		return true
	case Cas:
		return o.Done
	case Del:
		return o.Deleted > 0
	}
	return false
}

// Linearizable reports whether the operation must see every operation that was answered before it.
func (o *Op) Linearizable() bool {
	return o.Kind != Local && o.Kind != Pinned && o.Kind != Mirror &&
		(o.Kind != Page || !o.Page.Serializable)
}

// local reports whether the operation shows the newest state that the member, or the mirror, has.
func (o *Op) local() bool {
	return o.Kind == Local || o.Kind == Mirror || o.Kind == Page && o.Page.Serializable
}

// Recorder collects operations of concurrent clients.
type Recorder struct {
	mu sync.Mutex
	// all are those since the last take.
	all []Op
}

func (r *Recorder) Add(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
}

// Take returns the collected operations, in order of the calls.
func (r *Recorder) Take() []Op {
	r.mu.Lock()
	out := r.all
	r.all = nil
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b Op) int { return int(a.Call - b.Call) })
	return out
}
