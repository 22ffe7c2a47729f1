package client

import (
	"context"
	"time"

	"vigil/client/internal/pool"
)

// Hooks are functions that the client calls on events; each may be nil. The goroutine of the event
// calls them, so they must not block, and must be safe for concurrent use.
type Hooks struct {
	// StartCall is called before the first attempt of a call, with the method, such as
	// "/etcdserverpb.KV/Put". The call uses the returned context, which may carry a trace.
	StartCall func(ctx context.Context, method string) context.Context
	// EndCall is called after the end of a call.
	EndCall func(ctx context.Context, call Call)
	// Retry is called before each attempt after the first.
	Retry func(method, member string, attempt int, err error)
	// Member is called when the state of a member changes.
	Member func(endpoint string, state MemberState, err error)
	// Watch is called when a stream of watchers starts, ends or moves, and when a watcher is set
	// aside.
	Watch func(WatchChange)
}

// Call describes a call that has ended.
type Call struct {
	Method   string
	Member   string // of the last attempt
	Attempts int
	Duration time.Duration
	Err      error
}

// MemberState is the state of a member for a client.
type MemberState uint8

// The states of a member.
const (
	// MemberIdle: not connected, and not needed.
	MemberIdle = MemberState(pool.Idle)
	// MemberConnecting: a connection is being made.
	MemberConnecting = MemberState(pool.Connecting)
	// MemberReady: connected, and the member reports that it serves, or nothing.
	MemberReady = MemberState(pool.Ready)
	// MemberSick: connected, and the member reports that it does not serve or has no leader.
	MemberSick = MemberState(pool.Sick)
	// MemberFailed: the last attempt to connect failed; another will follow.
	MemberFailed = MemberState(pool.Failed)
)

// String returns the state as a word.
func (s MemberState) String() string { return pool.State(s).String() }

// WatchChange is an event of watchers.
type WatchChange struct {
	// Kind is the event.
	Kind WatchChangeKind
	// Member is the endpoint.
	Member string
	// Watchers is the number of watchers.
	Watchers int
	// Err is the reason, if there is one.
	Err error
}

// WatchChangeKind is a kind of [WatchChange].
type WatchChangeKind uint8

// The kinds of [WatchChange].
const (
	// WatchConnected: a stream started and its watchers are being created on it.
	WatchConnected WatchChangeKind = iota
	// WatchDisconnected: a stream ended; its watchers continue on another.
	WatchDisconnected
	// WatchSetAside: a watcher with a full buffer left the shared stream. It continues on a
	// separate stream after it has been read.
	WatchSetAside
)
