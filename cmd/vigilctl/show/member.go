package show

import (
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// hexHeader is the JSON form of a header with IDs in hexadecimal.
type hexHeader struct {
	ClusterID string `json:"cluster_id"`
	MemberID  string `json:"member_id"`
	Revision  int64  `json:"revision,omitempty"`
	RaftTerm  uint64 `json:"raft_term,omitempty"`
}

// hexMember is the JSON form of a member with its ID in hexadecimal.
type hexMember struct {
	ID         string   `json:"ID"`
	Name       string   `json:"name,omitempty"`
	PeerURLs   []string `json:"peerURLs,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	IsLearner  bool     `json:"isLearner,omitempty"`
}

type hexMembers struct {
	Header  hexHeader   `json:"header"`
	Member  *hexMember  `json:"member,omitempty"`
	Members []hexMember `json:"members"`
}

func hexadecimal(h *etcdserverpb.ResponseHeader, members []*etcdserverpb.Member) hexMembers {
	x := hexMembers{Header: hexHeader{hex64(h.GetClusterId()), hex64(h.GetMemberId()),
		h.GetRevision(), h.GetRaftTerm()}, Members: []hexMember{}}
	for _, m := range members {
		x.Members = append(x.Members, inHex(m))
	}
	return x
}

func inHex(m *etcdserverpb.Member) hexMember {
	return hexMember{hex64(m.GetID()), m.GetName(), m.GetPeerURLs(), m.GetClientURLs(),
		m.GetIsLearner()}
}

func hex64(v uint64) string { return strconv.FormatUint(v, 16) }

// MemberAdd is the answer to adding a member. The format simple has the settings for the member's
// first start, including the name.
func MemberAdd(r *etcdserverpb.MemberAddResponse, name, peerURLs string) Answer {
	x := hexadecimal(r.GetHeader(), r.GetMembers())
	added := inHex(r.GetMember())
	x.Member = &added
	return Answer{Value: r, Hexadecimal: x, Simple: func(p *Printer) {
		as := " "
		if r.GetMember().GetIsLearner() {
			as = " as learner "
		}
		p.Printf("Member %16x added%sto cluster %16x\n", r.GetMember().GetID(), as,
			r.GetHeader().GetClusterId())
		var all []string
		for _, m := range r.GetMembers() {
			for _, u := range m.GetPeerURLs() {
				called := m.GetName()
				if m.GetID() == r.GetMember().GetID() {
					called = name
				}
				all = append(all, called+"="+u)
			}
		}
		p.Printf("\nETCD_NAME=%q\nETCD_INITIAL_CLUSTER=%q\nETCD_INITIAL_ADVERTISE_PEER_URLS=%q\nETCD_INITIAL_CLUSTER_STATE=\"existing\"\n",
			name, strings.Join(all, ","), peerURLs)
	}}
}

// MemberRemove is the answer to removing a member. It prints the member's name unless that is
// empty, as do the next functions.
func MemberRemove(id uint64, name string, r *etcdserverpb.MemberRemoveResponse) Answer {
	return memberDone(r, r.GetHeader(), r.GetMembers(), id, name, "removed from")
}

// MemberUpdate is the answer to changing a member's peer URLs.
func MemberUpdate(id uint64, name string, r *etcdserverpb.MemberUpdateResponse) Answer {
	return memberDone(r, r.GetHeader(), r.GetMembers(), id, name, "updated in")
}

// MemberPromote is the answer to promoting a learner.
func MemberPromote(id uint64, name string, r *etcdserverpb.MemberPromoteResponse) Answer {
	return memberDone(r, r.GetHeader(), r.GetMembers(), id, name, "promoted in")
}

func memberDone(r any, h *etcdserverpb.ResponseHeader, members []*etcdserverpb.Member, id uint64,
	name, done string) Answer {
	return Answer{Value: r, Hexadecimal: hexadecimal(h, members),
		Simple: func(p *Printer) {
			p.Printf("Member %16x%s %s cluster %16x\n", id, parenthesized(name), done,
				h.GetClusterId())
		}}
}

// parenthesized formats a name that follows an ID, "" without a name.
func parenthesized(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

// MemberList is the list of members.
func MemberList(r *etcdserverpb.MemberListResponse) Answer {
	var rows [][]string
	for _, m := range r.GetMembers() {
		state := "started"
		if m.GetName() == "" {
			state = "unstarted"
		}
		rows = append(rows, []string{hex64(m.GetID()), state, m.GetName(),
			strings.Join(m.GetPeerURLs(), ","),
			strings.Join(m.GetClientURLs(), ","), fmt.Sprint(m.GetIsLearner())})
	}
	return Answer{Value: r, Hexadecimal: hexadecimal(r.GetHeader(), r.GetMembers()),
		Simple: lines(rows),
		Table: func() ([]string, [][]string) {
			return []string{"ID", "Status", "Name", "Peer Addrs", "Client Addrs",
				"Is Learner"}, rows
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			for _, m := range r.GetMembers() {
				p.id("ID", m.GetID())
				p.Printf("\"Name\" : %q\n", m.GetName())
				for _, u := range m.GetPeerURLs() {
					p.Printf("\"PeerURL\" : %q\n", u)
				}
				for _, u := range m.GetClientURLs() {
					p.Printf("\"ClientURL\" : %q\n", u)
				}
				p.Printf("\"IsLearner\" : %t\n\n", m.GetIsLearner())
			}
		}}
}

// lines prints rows as comma-separated columns.
func lines(rows [][]string) func(*Printer) {
	return func(p *Printer) {
		for _, r := range rows {
			p.Printf("%s\n", strings.Join(r, ", "))
		}
	}
}

// MoveLeader is the answer to transferring leadership. It prints a name that is not empty.
func MoveLeader(from, to uint64, fromName, toName string,
	r *etcdserverpb.MoveLeaderResponse) Answer {
	return Answer{Value: r, Simple: func(p *Printer) {
		p.Printf("Leadership transferred from %x%s to %x%s\n", from, parenthesized(fromName), to,
			parenthesized(toName))
	}}
}

// Downgrade is the answer to a downgrade request. done is validate, enable or cancel.
func Downgrade(done string, r *etcdserverpb.DowngradeResponse) Answer {
	return Answer{Value: r,
		Simple: func(p *Printer) {
			p.Printf("Downgrade %s success, cluster version %s\n", done,
				r.GetVersion())
		}}
}

// Alarms is a list of alarms. It prints the known names of the members: etcd's command line prints
// none.
func Alarms(r *etcdserverpb.AlarmResponse, names map[uint64]string) Answer {
	return Answer{Value: r,
		Table: func() (heading []string, rows [][]string) {
			for _, a := range r.GetAlarms() {
				rows = append(rows, []string{hex64(a.GetMemberID()), names[a.GetMemberID()],
					a.GetAlarm().String()})
			}
			return []string{"member ID", "name", "alarm"}, rows
		},
		Simple: func(p *Printer) {
			for _, a := range r.GetAlarms() {
				// This is the text format of the message, without zero fields.
				var words []string
				if a.GetMemberID() != 0 {
					words = append(words, fmt.Sprintf("memberID:%d", a.GetMemberID()))
				}
				if a.GetAlarm() != etcdserverpb.AlarmType_NONE {
					words = append(words, "alarm:"+a.GetAlarm().String())
				}
				if name := names[a.GetMemberID()]; name != "" {
					words = append(words, fmt.Sprintf("(%s, %x)", name, a.GetMemberID()))
				}
				p.Printf("%s\n", strings.Join(words, " "))
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			for _, a := range r.GetAlarms() {
				p.id("MemberID", a.GetMemberID())
				p.Printf("\"AlarmType\" : %s\n\n", a.GetAlarm())
			}
		}}
}
