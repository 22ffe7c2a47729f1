package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Wait tells what a member waits for that is alive but does not serve clients yet. Members report
// it at /debug/vars and to each other.
type Wait struct {
	// For is one of the constants below. It decides the next step.
	For string `json:"for"`
	// What is one line that continues "waiting for".
	What string `json:"what"`
	// Seconds is how long the process has run.
	Seconds int64 `json:"seconds"`
	// Name is the member's --name.
	Name string `json:"name"`
}

// Values of Wait.For.
const (
	ForMembers   = "members"   // members that it asks or discovers before its data directory exists
	ForDirectory = "directory" // the lock of its data directory
	ForData      = "data"      // its own disk
	ForMajority  = "majority"  // members that do not answer
	// members that answer but refuse each other: swapped directories, other clusters
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

// String describes the wait on one line. Parts may come from other members, so the length is
// limited.
func (w *Wait) String() string { return "waiting for " + w.text() }

// Alive describes a member that could be taken for dead.
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

// nextStep returns the next step and the page for a wait.
func (w *Wait) nextStep() (next, page string) {
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

// PeerFailure is the reason why a member cannot connect to another one or send it messages. There
// is at most one for each other member of the cluster.
type PeerFailure struct {
	// Member is the ID of the other member, in hexadecimal.
	Member string `json:"member"`
	// Reason is one of the constants below, or another word if none of them fits.
	Reason string `json:"reason"`
	// Cluster and Answered are the cluster ID and member ID of whoever answered at the peer URL, in
	// hexadecimal. They are empty if nobody did.
	Cluster  string `json:"cluster,omitempty"`
	Answered string `json:"answered,omitempty"`
	// Text is the error.
	Text    string `json:"text"`
	Seconds int64  `json:"seconds"`
	// Comes is set if the other member has made the connection instead: messages can be sent.
	Comes bool `json:"comes,omitempty"`
}

// Reasons of failures that do not resolve themselves.
const (
	WrongCluster = "wrong cluster"
	WrongMember  = "wrong member"
	WrongVersion = "incompatible version"
	WrongTLS     = "TLS"
)

// Lasts reports whether the failure is a refusal, which does not resolve itself.
func (f *PeerFailure) Lasts() bool {
	return f.Reason == WrongCluster || f.Reason == WrongMember || f.Reason == WrongVersion ||
		f.Reason == WrongTLS
}

// rejection is what members report about a member that refuses them or that they refuse.
type rejection struct {
	// key is equal for reports of one finding: their texts may differ in a time.
	key, what, next, page string
	by                    []string
}

// rejections returns the refusals that the answering members report, by the ID of the other member.
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

// rejectionOf interprets a failure. ok is false if the other member may just be unreachable.
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

// answerer names the member that answered at another member's address.
func (e *Examination) answerer(f *PeerFailure) string {
	for _, m := range e.Members {
		if hexadecimal(m.ID) == f.Answered {
			return "member " + e.Name(m.ID)
		}
	}
	return "member " + clip(f.Answered, 16) + ", which is not in the list,"
}

// checkRefused finds running members that cannot take part because others refuse them.
func (e *Examination) checkRefused(r *report) {
	all := e.rejections()
	for _, m := range e.Members {
		for _, x := range all[hexadecimal(m.ID)] {
			verb := " refuses it: "
			if len(x.by) > 1 {
				verb = " refuse it: "
			}
			r.addFinding(Critical, e.Name(m.ID), strings.Join(x.by, ", ")+verb+x.what,
				x.next, x.page)
		}
	}
}

// checkNames finds members with the same name: one was started with the name, and perhaps the data
// directory, of another.
func (e *Examination) checkNames(r *report) {
	of := map[string][]string{}
	for _, m := range e.Members {
		if m.Name != "" {
			of[m.Name] = append(of[m.Name], hexadecimal(m.ID))
		}
	}
	for _, m := range e.Members {
		if ids := of[m.Name]; len(ids) > 1 && ids[0] == hexadecimal(m.ID) {
			r.addFinding(Warning, m.Name,
				fmt.Sprintf("is the name of %d members: %s", len(ids), strings.Join(ids, ", ")),
				"compare --name, --data-dir and the peer URLs of each with vigilctl member list: if two data directories are swapped, start each member with its own; otherwise start one with another --name", "docs/operations/cluster.md#when-a-member-does-not-start-or-join")
		}
	}
}

// checkDetours notes members that another member cannot connect to, and that connect to it instead.
func (e *Examination) checkDetours(r *report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		for _, f := range x.Failures {
			j := slices.IndexFunc(e.Members,
				func(m *etcdserverpb.Member) bool { return hexadecimal(m.ID) == f.Member })
			if !f.Comes || j < 0 {
				continue
			}
			r.addFinding(Note, e.Name(e.Members[j].ID),
				fmt.Sprintf("%s cannot connect to it, so it connects to %s, which serves as well: %s", e.NameOf(x), e.NameOf(x), clip(f.Text, maxFailureText)),
				"check its peer URL (vigilctl member list), firewalls that work one way, and certificates; the two are apart as soon as the other direction fails too", "docs/operations/cluster.md#when-a-member-does-not-start-or-join")
		}
	}
}
