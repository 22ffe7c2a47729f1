package health

import (
	"strings"
	"testing"
)

// findingsOf returns the findings of a check about a member.
func findingsOf(d *Diagnosis, check, member string) (out []Finding) {
	for _, f := range d.Findings {
		if f.Check == check && f.Member == member {
			out = append(out, f)
		}
	}
	return out
}

// A member that is alive and waits is not called dead, and nobody is told to start it again.
func TestWaitingMember(t *testing.T) {
	for _, kind := range []string{ForMembers, ForDirectory, ForData, ForMajority, ForIdentity,
		ForTLS, ForLeader, ForCatchUp, "of a later version"} {
		d := diagnose(t, func(e *Examination) {
			dead(e, 2)
			e.Readings[2].Waits = &Wait{For: kind,
				What: "something\x00 of\nits own " + strings.Repeat("x", 5000), Seconds: 70}
		})
		got := findingsOf(d, "reachable", "c")
		if len(got) != 1 || got[0].Severity != Critical ||
			!strings.HasPrefix(got[0].What, "is alive, and waiting for something") ||
			!strings.HasSuffix(got[0].What, "... (it started 1m10s ago)") ||
			len(got[0].What) > maxWaitText+100 || got[0].Page == "" ||
			strings.Contains(got[0].Next, "and start it again") {
			t.Errorf("%s: %+v", kind, got)
		}
		for _, f := range d.Findings {
			if f.Check == "quorum" && strings.Contains(f.Next, "again first") {
				t.Errorf("%s: %+v", kind, f)
			}
		}
	}
}

// Who refuses a member, and why, is one finding for each reason; the advice to start it again is
// not given.
func TestRefusedMember(t *testing.T) {
	fail := func(e *Examination, by int, f PeerFailure) {
		e.Readings[by].Failures = append(e.Readings[by].Failures, f)
	}
	for name, c := range map[string]struct {
		f          PeerFailure
		what, next string
	}{
		"a swapped directory": {PeerFailure{Member: "3", Reason: WrongMember, Answered: "2"},
			"a, b refuse it: at its peer URL answers member b, whose data directory is in use there", nextIdentity},
		"a stranger": {PeerFailure{Member: "3", Reason: WrongMember,
			Answered: "feedfeedfeedfeedfeed"},
			"a, b refuse it: at its peer URL answers member feedfeedfeedf..., which is not in the list,", nextIdentity},
		"another cluster": {PeerFailure{Member: "3", Reason: WrongCluster, Cluster: "c2"},
			"a, b refuse it: the member at its peer URL belongs to another cluster: c2",
			nextIdentity},
		"certificates": {PeerFailure{Member: "3", Reason: WrongTLS,
			Text: "TLS handshake: bad certificate"},
			"a, b refuse it: TLS fails: TLS handshake: bad certificate", nextPeerTLS},
		"dead": {PeerFailure{Member: "3", Reason: "unreachable",
			Text: "connection refused"}, "", "start it again"},
		"not in the list": {PeerFailure{Member: "9", Reason: WrongCluster, Cluster: "c2"}, "",
			"start it again"},
		"a reason of later on": {PeerFailure{Member: "3", Reason: "something new"}, "",
			"start it again"},
	} {
		d := diagnose(t, func(e *Examination) {
			dead(e, 2)
			fail(e, 1, c.f)
			fail(e, 0, c.f)
		})
		got := findingsOf(d, "reachable", "c")
		if c.what == "" {
			if len(got) != 1 || !strings.Contains(got[0].Next, c.next) {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if len(got) != 2 || !strings.HasPrefix(got[1].What, c.what) || got[0].Next != c.next ||
			got[1].Next != c.next || got[1].Severity != Critical {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Two members of one name cannot be told apart, which happens when data directories are swapped.
func TestMembersOfOneName(t *testing.T) {
	d := diagnose(t, func(e *Examination) { e.Members[1].Name = "c" })
	got := findingsOf(d, "reachable", "c")
	if len(got) != 1 || got[0].Severity != Warning ||
		got[0].What != "is the name of 2 members: 2, 3" {
		t.Errorf("%+v", got)
	}
	d = diagnose(t, func(e *Examination) { e.Members[1].Name, e.Members[2].Name = "", "" })
	if got := findingsOf(d, "reachable", ""); len(got) != 0 {
		t.Errorf("members without a name: %+v", got)
	}
}
