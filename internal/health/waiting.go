package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Wait is what a member waits for that is alive and does not serve clients yet. Members report it
// at /debug/vars and to each other.
type Wait struct {
	// For is one of the constants below, which decides the next step.
	For string `json:"for"`
	// What is one line that follows "waiting for".
	What string `json:"what"`
	// Seconds is how long the process has run.
	Seconds int64 `json:"seconds"`
	// Name is the member's --name.
	Name string `json:"name"`
}

// What a member may wait for.
const (
	ForMembers   = "members"   // that it asks or finds before its data directory exists
	ForDirectory = "directory" // the lock of its data directory
	ForData      = "data"      // its own disk
	ForMajority  = "majority"  // members that do not answer
	// members that answer, and refuse each other: swapped directories, other clusters
	ForIdentity = "identity"
	ForTLS      = "tls"      // members whose certificates do not fit
	ForLeader   = "leader"   // an election
	ForCatchUp  = "catch-up" // entries or a snapshot of the leader
)

const (
	maxWaitText    = 1200
	maxWaitName    = 64
	maxFailureText = 320
)

// String returns the wait as a line. Parts of it may come from other members, so it is bounded.
func (w *Wait) String() string { return "waiting for " + w.text() }

// Alive is String of a member that somebody may take for dead.
func (w *Wait) Alive() string { return "is alive, and waiting for " + w.text() }

func (w *Wait) text() string {
	return fmt.Sprintf("%s (it started %v ago)", clip(w.What, maxWaitText),
		time.Duration(w.Seconds)*time.Second)
}

func clip(s string, most int) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}

// next returns the next step and the page for a wait.
func (w *Wait) next() (next, page string) {
	const start = "docs/operations/cluster.md#when-a-member-waits"
	switch w.For {
	case ForMembers:
		return "do not start it again: it goes on by itself as soon as what it waits for is there. Its log has the reason, and what to do if it lasts", start
	case ForDirectory, ForData:
		return "do not start it again, it would begin from the start. If it lasts, check whether its disk answers (its log has the file)", "docs/operations/disks.md"
	case ForMajority:
		return "start the members that are missing, with their data directories, which loses nothing; if they run, the errors say why they cannot be reached. This member need not be started again", "docs/operations/backup.md#the-majority-is-lost"
	case ForIdentity:
		return nextIdentity, start
	case ForTLS:
		return nextPeerTLS, "docs/operations/security.md"
	case ForLeader:
		return "check that the members can reach each other on their peer ports, in both directions", ""
	case ForCatchUp:
		return "wait: it serves as soon as it has the leader's data; /metrics shows the progress",
			""
	}
	return "see its log; it need not be started again", ""
}

const (
	nextIdentity = "start each member with its own data directory and its own --initial-advertise-peer-urls (vigilctl member list has the URLs). If the cluster was restored from a backup, restore this member from the file that the others were restored from, with the same --initial-cluster and --initial-cluster-token"
	nextPeerTLS  = "compare --peer-cert-file, --peer-key-file and --peer-trusted-ca-file of both members: each certificate must be valid, for the host in the peer URL, and from an authority that the other one trusts"
)

// PeerFailure is why a member cannot send messages to another one, or cannot connect to it. There
// is at most one for each other member of the cluster.
type PeerFailure struct {
	// Member is the ID of the other one, in hexadecimal.
	Member string `json:"member"`
	// Reason is one of the constants below, or another word if neither of them.
	Reason string `json:"reason"`
	// Cluster and Answered are the IDs of who answered at the peer URL, in hexadecimal; empty if
	// nobody did.
	Cluster  string `json:"cluster,omitempty"`
	Answered string `json:"answered,omitempty"`
	// Text is the error.
	Text    string `json:"text"`
	Seconds int64  `json:"seconds"`
	// Comes is set if the other one has made the connection instead: messages can be sent.
	Comes bool `json:"comes,omitempty"`
}

// Reasons of failures that do not pass by themselves.
const (
	WrongCluster = "wrong cluster"
	WrongMember  = "wrong member"
	WrongVersion = "incompatible version"
	WrongTLS     = "TLS"
)

// Lasts reports whether the failure is a refusal, which does not pass by itself.
func (f *PeerFailure) Lasts() bool {
	return f.Reason == WrongCluster || f.Reason == WrongMember || f.Reason == WrongVersion ||
		f.Reason == WrongTLS
}

// rejection is what members say about another one that they refuse, or that refuses them.
type rejection struct {
	// key is the same for what is one finding: texts may differ in a time.
	key, what, next, page string
	by                    []string
}

// rejections returns what the members that answered refuse about each other member, by its ID.
func (e *Examination) rejections() map[string][]*rejection {
	out := map[string][]*rejection{}
	for i := range e.Readings {
		x := &e.Readings[i]
		for _, f := range x.Failures {
			r, ok := e.rejectionOf(&f)
			if !ok || !slices.ContainsFunc(e.Members,
				func(m *etcdserverpb.Member) bool { return hexadecimal(m.ID) == f.Member }) {
				continue
			}
			list := out[f.Member]
			r.key = f.Reason + " " + f.Cluster + " " + f.Answered
			if j := slices.IndexFunc(list,
				func(o *rejection) bool { return o.key == r.key }); j >= 0 {
				list[j].by = append(list[j].by, e.NameOf(x))
				slices.Sort(list[j].by)
				continue
			}
			r.by = []string{e.NameOf(x)}
			out[f.Member] = append(list, r)
		}
	}
	return out
}

// rejectionOf returns what a failure says of a member; ok is false if it may be just away.
func (e *Examination) rejectionOf(f *PeerFailure) (r *rejection, ok bool) {
	const start = "docs/operations/cluster.md#when-a-member-waits"
	if f.Comes {
		return nil, false
	}
	switch f.Reason {
	case WrongMember:
		return &rejection{what: "at its peer URL answers " + e.answerer(f) +
			", whose data directory is in use there", next: nextIdentity, page: start}, true
	case WrongCluster:
		return &rejection{what: "the member at its peer URL belongs to another cluster: " +
			clip(f.Cluster, 16), next: nextIdentity, page: start}, true
	case WrongTLS:
		return &rejection{what: "TLS fails: " + clip(f.Text, maxFailureText), next: nextPeerTLS,
			page: "docs/operations/security.md"}, true
	case WrongVersion:
		return &rejection{what: clip(f.Text, maxFailureText),
			next: "run versions of the program that can be in one cluster",
			page: "docs/operations/upgrade.md"}, true
	}
	return nil, false
}

// answerer names the member that answered in the place of another one.
func (e *Examination) answerer(f *PeerFailure) string {
	for _, m := range e.Members {
		if hexadecimal(m.ID) == f.Answered {
			return "member " + e.Name(m.ID)
		}
	}
	return "member " + clip(f.Answered, 16) + ", which is not in the list,"
}

// checkRefused reports members that run and cannot take part, because others refuse them.
func (e *Examination) checkRefused(r *report) {
	all := e.rejections()
	for _, m := range e.Members {
		for _, x := range all[hexadecimal(m.ID)] {
			verb := " refuses it: "
			if len(x.by) > 1 {
				verb = " refuse it: "
			}
			r.find(Critical, e.Name(m.ID), strings.Join(x.by, ", ")+verb+x.what, x.next, x.page)
		}
	}
}

// checkNames reports members of one name: one of them was started with the name, and maybe the data
// directory, of another one.
func (e *Examination) checkNames(r *report) {
	of := map[string][]string{}
	for _, m := range e.Members {
		if m.Name != "" {
			of[m.Name] = append(of[m.Name], hexadecimal(m.ID))
		}
	}
	for _, m := range e.Members {
		if ids := of[m.Name]; len(ids) > 1 && ids[0] == hexadecimal(m.ID) {
			r.find(Warning, m.Name,
				fmt.Sprintf("is the name of %d members: %s", len(ids), strings.Join(ids, ", ")),
				"compare --name, --data-dir and the peer URLs of each with vigilctl member list: if two data directories are swapped, start each member with its own; otherwise start one with another --name", "docs/operations/cluster.md#when-a-member-does-not-start-or-join")
		}
	}
}

// checkDetours notes members to which another one cannot connect, and which connect to it instead.
func (e *Examination) checkDetours(r *report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		for _, f := range x.Failures {
			j := slices.IndexFunc(e.Members,
				func(m *etcdserverpb.Member) bool { return hexadecimal(m.ID) == f.Member })
			if !f.Comes || j < 0 {
				continue
			}
			r.find(Note, e.Name(e.Members[j].ID),
				fmt.Sprintf("%s cannot connect to it, so it connects to %s, which serves as well: %s", e.NameOf(x), e.NameOf(x), clip(f.Text, maxFailureText)),
				"check its peer URL (vigilctl member list), firewalls that work one way, and certificates; the two are apart as soon as the other direction fails too", "docs/operations/cluster.md#when-a-member-does-not-start-or-join")
		}
	}
}
