// Package attempt holds the state of a call that is retried: it chooses the member and the
// credential of each attempt, and decides what follows from an error. The caller makes the
// attempts.
package attempt

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/metadata"

	"vigil/client/internal/credential"
	"vigil/client/internal/pool"
	"vigil/client/internal/request"
)

// maxRenewals is how many tokens in a row a server may refuse before the call fails.
const maxRenewals = 2

// State is the state of one call, for one goroutine at a time.
type State struct {
	Pool   *pool.Pool
	Tokens *credential.Cache
	// Pin is the only member to use, nil for any.
	Pin *pool.Member
	// Given, if set, is sent instead of a credential of Tokens.
	Given *credential.Credential
	// Leader makes members without a leader reject the call.
	Leader bool
	// Room is memory for the context of the next attempt.
	Room *request.Context
	// Avoid is a member that is used only if there is no other.
	Avoid *pool.Member

	// At is the member of the last attempt, Credential the one that was sent to it, and Count the
	// number of attempts.
	At         *pool.Member
	Credential *credential.Credential
	Count      int

	leaves uint64 // of At when it was chosen
	renews int
}

// Next chooses a member, which must be released, and a credential for another attempt. It returns
// the context of the attempt. Its errors come from Pool.Pick and Tokens.Get.
func (s *State) Next(ctx context.Context) (context.Context, error) {
	if s.Credential = s.Given; s.Credential == nil {
		var err error
		if s.Credential, err = s.Tokens.Get(ctx); err != nil {
			return nil, err
		}
	}
	at, err := s.Pool.Pick(ctx, s.Pin, s.Avoid)
	if err != nil {
		return nil, err
	}
	s.At, s.leaves = at, at.Leaves()
	s.Count++
	md := s.Credential.Plain
	if s.Leader {
		md = s.Credential.Leader
	}
	room := s.Room
	if s.Room = nil; room == nil { // gRPC may still use the last one
		room = new(request.Context)
	}
	return with(ctx, md, room), nil
}

// with adds a credential to a context. room is memory for the result.
func with(ctx, credential context.Context, room *request.Context) context.Context {
	if own, ok := metadata.FromOutgoingContext(ctx); ok {
		md, _ := metadata.FromOutgoingContext(credential)
		return metadata.NewOutgoingContext(ctx, metadata.Join(md, own))
	}
	*room = request.Context{Context: ctx, Metadata: credential}
	return room
}

// Member returns the endpoint of the last attempt, empty if there was none.
func (s *State) Member() string {
	if s.At == nil {
		return ""
	}
	return s.At.Name()
}

// OnLeave calls f when calls are to leave the member of the last attempt, unless the returned
// function is called before.
func (s *State) OnLeave(f func()) (forget func()) { return s.At.OnLeave(s.leaves, f) }

// MarkMember records what an error says about the member of the last attempt.
func (s *State) MarkMember(v Verdict, err error) {
	if v.Sick {
		s.At.Suspect(err)
	}
	if v.Elsewhere {
		s.Avoid = s.At
	}
}

// RenewToken drops a token that was refused and reports whether another attempt may help. With a
// verdict Again it may help without another token: a certificate has none.
func (s *State) RenewToken(v Verdict) bool {
	if v.Again && s.Given == nil {
		s.Tokens.Reject(s.Credential)
		return true
	}
	s.renews++
	if v.Again {
		return s.renews <= maxRenewals
	}
	return s.Given == nil && s.renews <= maxRenewals && s.Tokens.Reject(s.Credential)
}

// RecordAnswer records that the member has answered: the next failure counts as the first.
func (s *State) RecordAnswer() { s.Count, s.renews, s.Avoid = 0, 0, nil }

// Pause returns how long to wait after the nth attempt.
func Pause(n int) time.Duration {
	const first, most = 25 * time.Millisecond, time.Second
	d := most
	if n < 7 {
		d = min(most, first<<max(0, n-1))
	}
	return d/2 + rand.N(d)
}
