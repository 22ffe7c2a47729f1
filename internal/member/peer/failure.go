package peer

import (
	"context"
	"errors"
	"strings"
	"time"
)

// maxFailureText bounds the text of a Failure.
const maxFailureText = 300

// Failure says why this member cannot send messages to another. It comes from dialing the peer URLs
// in the membership, never from an accepted connection, so that a program outside the cluster
// cannot cause one.
type Failure struct {
	// Since is the time of the first failed dial after messages could last be sent.
	Since time.Time
	// Code is the reason if the two sides have exchanged identities, 0 otherwise. ByPeer is set if
	// the other side gave it.
	Code   Code
	ByPeer bool
	// TLS is set if the TLS handshake failed.
	TLS bool
	// Cluster and Member are the ids of the member that answered, 0 if none did.
	Cluster, Member uint64
	// Text is one line of printable ASCII, of at most 300 bytes.
	Text string
}

// Reason returns the failure as one word: the name of the code, "TLS", or "unreachable".
func (f *Failure) Reason() string {
	switch {
	case f.TLS:
		return "TLS"
	case codeNames[f.Code] != "":
		return codeNames[f.Code]
	}
	return "unreachable"
}

// noteFailure notes why a dial failed, or why the stream of messages has ended.
func (p *remote) noteFailure(err error) {
	f := Failure{Since: time.Now(), TLS: errors.Is(err, errHandshakeTLS) || certificateAlert(err),
		Text: failureText(err)}
	if e := (*Error)(nil); errors.As(err, &e) {
		f.Code, f.ByPeer, f.Cluster, f.Member = e.Code, e.remote, e.cluster, e.member
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.link != nil {
		return // another kind of stream failed while messages pass
	}
	if old := p.mu.failure; old != nil {
		f.Since = old.Since
	}
	p.mu.failure = &f
}

// detourCheck times BackoffMin, one minute, is the pause between two dials of a member that had to
// make the connection itself.
const detourCheck = 600

// watchDetour clears the detour as soon as this side can dial the member. The connection that the
// member made stays.
func (p *remote) watchDetour(ctx context.Context) {
	t := time.NewTicker(detourCheck * p.t.o.BackoffMin)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if p.reachable(ctx) {
			p.mu.Lock()
			p.mu.detour = nil
			p.mu.Unlock()
			return
		}
	}
}

// reachable reports whether the member answers at one of its URLs.
func (p *remote) reachable(ctx context.Context) bool {
	p.t.mu.Lock()
	h := p.t.helloLocked(kindCall, p.id)
	p.t.mu.Unlock()
	d := p.t.o.dialer(kindCall)
	for _, u := range p.urls() {
		if l, err := d.dial(ctx, u, &h, &p.stats.sentBytes, &p.stats.receivedBytes); err == nil {
			l.end(nil)
			return true
		}
	}
	return false
}

// certificateAlert reports whether the other side rejected this member's certificate. The alert
// arrives when the handshake is already over for this side.
func certificateAlert(err error) bool {
	return strings.HasPrefix(certificateFailure(err), " alert: ")
}

// failureText returns an error as one line. Parts of it may come from the other side.
func failureText(err error) string {
	text := printable([]byte(strings.ReplaceAll(err.Error(), "\n", "; ")))
	if len(text) > maxFailureText {
		text = text[:maxFailureText-3] + "..."
	}
	return text
}
