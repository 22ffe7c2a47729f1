package clustercmd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/screen"
)

// chosen is the member that an argument identifies.
type chosen struct {
	id   uint64
	name string // if the argument is the name, which etcdctl does not know
	// unknown is the hint to add when the cluster answers that the member does not exist.
	unknown string
}

// chooseMember returns the member with an ID or a name. If a text is both, the ID wins. If no
// member has the ID, the cluster rejects it.
func chooseMember(s cli.Session, arg string) (chosen, error) {
	id, wrong := command.UnsignedHex(arg)
	r, err := etcdserverpb.NewClusterClient(s.Conn).MemberList(s.Ctx,
		&etcdserverpb.MemberListRequest{Linearizable: true})
	if err != nil {
		if wrong == nil {
			return chosen{id: id}, nil
		}
		return chosen{}, err
	}
	var named []string
	for _, m := range r.GetMembers() {
		if wrong == nil && m.GetID() == id {
			return chosen{id: id}, nil
		}
	}
	found, decimal := chosen{}, ""
	for _, m := range r.GetMembers() {
		if strconv.FormatUint(m.GetID(), 10) == arg {
			decimal = fmt.Sprintf("%s is the decimal ID of %s; ", arg, describe(m))
		}
		if m.GetName() == arg && arg != "" {
			named = append(named, describe(m))
			found = chosen{id: m.GetID(), name: screen.SafeLine(0, arg)}
		}
	}
	switch {
	case len(named) == 1:
		return found, nil
	case len(named) > 1:
		return chosen{}, exit.Usage("%d members have the name %q: %s; give the ID of one",
			len(named), arg, strings.Join(named, ", "))
	case wrong == nil:
		return chosen{id: id, unknown: decimal + "the members are " + describeAll(r.GetMembers())},
			nil
	}
	return chosen{}, exit.Usage("bad member ID arg (want a hexadecimal number or the name of a member, not %q), expecting ID in Hex; %sthe members are %s", arg, decimal, describeAll(r.GetMembers()))
}

// describe returns the name and ID of a member. The result is one line whatever the name contains.
// A member that has not started has no name yet.
func describe(m *etcdserverpb.Member) string {
	if m.GetName() == "" {
		return screen.SafeLine(0,
			fmt.Sprintf("%x (not started, %s)", m.GetID(), strings.Join(m.GetPeerURLs(), ",")))
	}
	return screen.SafeLine(0, fmt.Sprintf("%s (%x)", m.GetName(), m.GetID()))
}

func describeAll(members []*etcdserverpb.Member) string {
	var list []string
	for _, m := range members {
		list = append(list, describe(m))
	}
	return strings.Join(list, ", ")
}

// explainUnknown adds the list of existing members to an error about a member that does not exist.
func (m *chosen) explainUnknown(err error) error {
	if err == nil || m.unknown == "" {
		return err
	}
	return fmt.Errorf("%w\n  no member has the ID %x: %s", cli.CallError(err), m.id, m.unknown)
}

// memberNames returns the names of the members by their IDs, as far as one member knows them. They
// only make an answer easier to read: the answer is complete without them.
func memberNames(s cli.Session) map[uint64]string {
	names := map[uint64]string{}
	r, err := etcdserverpb.NewClusterClient(s.Conn).MemberList(s.Ctx,
		&etcdserverpb.MemberListRequest{})
	if err != nil {
		return names
	}
	for _, m := range r.GetMembers() {
		names[m.GetID()] = screen.SafeLine(0, m.GetName())
	}
	return names
}

// answerTimeout limits how long a member may take to show that it is alive.
const answerTimeout = 2 * time.Second

// removalQuestion returns the question to ask before a member is removed, "" if the other voting
// members that answer form a majority.
func removalQuestion(env *cli.Env, s cli.Session, arg string) (string, error) {
	target, err := chooseMember(s, arg)
	if err != nil {
		return "", err
	}
	r, err := etcdserverpb.NewClusterClient(s.Conn).MemberList(s.Ctx,
		&etcdserverpb.MemberListRequest{Linearizable: true})
	if err != nil {
		return "", err
	}
	var others []*etcdserverpb.Member
	voter, called := false, ""
	for _, m := range r.GetMembers() {
		switch {
		case m.GetID() == target.id:
			voter, called = !m.GetIsLearner(), describe(m)
		case !m.GetIsLearner():
			others = append(others, m)
		}
	}
	if !voter {
		return "", nil
	}
	if len(others) == 0 {
		return called + " is the only voting member: without it the cluster ends. Remove it?", nil
	}
	alive := countAnswering(s, others)
	if alive > len(others)/2 {
		return "", nil
	}
	// A member that does not answer here may still run: its addresses may be reachable only for its
	// clients.
	return fmt.Sprintf("Without %s there are %d voting members, of which %d %s here. If no more of them run, there is no majority, and nothing is served until there is one. Remove it?",
			called, len(others), alive,
			map[bool]string{true: "answers", false: "answer"}[alive == 1]),
		nil
}

// countAnswering returns how many of the members answer.
func countAnswering(s cli.Session, members []*etcdserverpb.Member) int {
	ctx, cancel := context.WithTimeout(s.Ctx, answerTimeout)
	defer cancel()
	var alive atomic.Int64
	var all sync.WaitGroup
	for _, m := range members {
		var once sync.Once
		// concurrently: a member that hangs does not use up the time of the others
		for _, at := range m.GetClientURLs() {
			all.Go(func() {
				one, err := s.Client.At(at)
				if err == nil {
					_, err = one.Maintenance().Status(ctx)
				}
				if err == nil {
					once.Do(func() { alive.Add(1) })
				}
			})
		}
	}
	all.Wait()
	return int(alive.Load())
}
