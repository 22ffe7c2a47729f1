package peer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// failureOf returns why a member cannot send messages to another one.
func failureOf(m *member, id uint64) *Failure {
	for _, s := range m.Status() {
		if s.ID == id {
			return s.Failure
		}
	}
	return nil
}

// A member knows who answers in the place of another one, from its own dials; it forgets that when
// messages can be sent.
func TestFailureNamesWhoAnswers(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	b.SetMembers(1, []Member{{a.id, []string{"http://127.0.0.1:1"}}}, nil) // it does not dial
	a.SetMembers(1, []Member{{0xbb, []string{b.url}}, {0xcc, []string{"http://127.0.0.1:1"}}}, nil)
	a.start(t)
	b.start(t)
	until(t, "a failure of each", func() bool {
		wrong, away := failureOf(a, 0xbb), failureOf(a, 0xcc)
		return wrong != nil && wrong.Code == CodeMember && away != nil && away.Code == 0
	})
	if f := failureOf(a, 0xbb); f.Reason() != "wrong member" || !f.ByPeer ||
		f.Cluster != testCluster || f.Member != b.id {
		t.Errorf("%+v", f)
	}
	if f := failureOf(a, 0xcc); f.Reason() != "unreachable" || f.Cluster != 0 || f.Member != 0 ||
		f.Since.IsZero() {
		t.Errorf("%+v", f)
	}
	a.SetMembers(2, []Member{{b.id, []string{b.url}}}, nil)
	until(t, "a connection", func() bool { return !a.ConnectedSince(b.id).IsZero() })
	if f := failureOf(a, b.id); f != nil {
		t.Errorf("of a member that is connected: %+v", f)
	}
}

// Connections that others open leave no trace in the failures, whatever they claim.
func TestStrangersCauseNoFailures(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	a.start(t)
	b.start(t)
	until(t, "a connection",
		func() bool { return !a.ConnectedSince(b.id).IsZero() && !b.ConnectedSince(a.id).IsZero() })
	for _, h := range []hello{
		{cluster: 0xbad, from: b.id, to: a.id},
		{cluster: testCluster, from: b.id, to: 0xbad},
		{cluster: testCluster, from: 0xbad, to: a.id, urls: []string{b.url}},
	} {
		h.minProtocol, h.maxProtocol, h.kind = minProtocol, maxProtocol, kindMessages
		if r, err := greetRaw(t, a.url, h.encode()); err != nil || r.code == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if list := a.Status(); len(list) != 1 || list[0].Failure != nil {
		t.Errorf("%+v", list)
	}
}

// What the other side says is bounded and printable.
func TestFailureText(t *testing.T) {
	err := errors.Join(errors.New("one\x1b[31m"), fmt.Errorf("two\r%s", strings.Repeat("é", 400)))
	got := failureText(err)
	if len(got) != maxFailureText || !strings.HasPrefix(got, "one?[31m; two?") ||
		strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
