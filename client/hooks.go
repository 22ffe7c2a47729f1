package client

import (
	"context"
	"time"

	"vigil/client/internal/pool"
)

// Hooks are functions that the client calls when something happens; each may be nil. They are called by the
// goroutine that it happens on, so they must not block, and must be safe for concurrent use.
type Hooks struct {
	// StartCall is called before a call's first attempt with the method, such as "/etcdserverpb.KV/Put". The
	// context it returns is used for the call, so a trace can be carried in it.
	StartCall func(ctx context.Context, method string) context.Context
	// EndCall is called when the call is over.
	EndCall func(ctx context.Context, call Call)
	// Retry is called before an attempt that is not the first.
	Retry func(method, member string, attempt int, err error)
	// Member is called when the state of a member changes.
	Member func(endpoint string, state MemberState, err error)
	// Watch is called when a stream of watchers begins, ends or moves, and when a watcher is set aside.
	Watch func(WatchChange)
}

// Call is a call that is over.
type Call struct {
	Method   string
	Member   string // of the last attempt
	Attempts int
	Duration time.Duration
	Err      error
}

// MemberState is what a client knows of a member.
type MemberState uint8

// The states of a member.
const (
	// MemberIdle: not connected, and no reason to be.
	MemberIdle = MemberState(pool.Idle)
	// MemberConnecting: a connection is being made.
	MemberConnecting = MemberState(pool.Connecting)
	// MemberReady: connected, and the member says that it serves or says nothing.
	MemberReady = MemberState(pool.Ready)
	// MemberSick: connected, and the member says that it does not serve, or has no leader.
	MemberSick = MemberState(pool.Sick)
	// MemberFailed: the last attempt to connect failed; another will follow.
	MemberFailed = MemberState(pool.Failed)
)

// String returns the state as a word.
func (s MemberState) String() string { return pool.State(s).String() }

// WatchChange is what happened to watchers.
type WatchChange struct {
	// Kind is what.
	Kind WatchChangeKind
	// Member is where.
	Member string
	// Watchers is how many it is about.
	Watchers int
	// Err is the reason, if there is one.
	Err error
}

// WatchChangeKind is a kind of WatchChange.
type WatchChangeKind uint8

// The kinds of WatchChange.
const (
	// WatchConnected: a stream began and its watchers are being created on it.
	WatchConnected WatchChangeKind = iota
	// WatchDisconnected: a stream ended; its watchers go on on another.
	WatchDisconnected
	// WatchSetAside: a watcher whose buffer was full left the shared stream; it goes on, on a stream of its
	// own, when it has been read.
	WatchSetAside
)
