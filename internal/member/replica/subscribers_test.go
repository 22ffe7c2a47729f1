package replica

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"vigil/internal/kv"
	"vigil/internal/member/replica/apply"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
	"vigil/internal/vfs/memfs"
)

// orders are the orders of subscribers that guarantees rest on: the effect of first is there before
// that of then.
var orders = []struct{ first, then, guarantee string }{
	{"withhold", "events", "watchers who have lost a right do not get the events of that commit"},
	{"withhold", "announce", "the services that review watchers release what is withheld"},
	{"events", "position", "a linearizable read that waited shows nothing that is not published"},
	{"events", "answers", "a write that has returned is published"},
	{"members", "alarms", "the alarm CORRUPT counts by the members of its own commit"},
	{"tokens", "announce", "no token outlives the end of auth"},
	{"members", "position", state}, {"alarms", "position", state}, {"level", "position", state},
	{"lineage", "position", state}, {"leases", "position", state}, {"tokens", "position", state},
	{"announce", "position", state},
	{"members", "answers", state}, {"alarms", "answers", state}, {"level", "answers", state},
	{"lineage", "answers", state}, {"leases", "answers", state}, {"tokens", "answers", state},
	{"announce", "answers", state},
	{"position", "answers", "a client that has its answer finds the member at that position"},
}

const state = "whoever has waited for a position, or has got an answer, finds the state of that position"

// noted is a hub that notes its calls.
type noted struct{ withheld, published bool }

func (n *noted) Withhold()                 { n.withheld = true }
func (n *noted) Publish(int64, []kv.Event) { n.published = true }
func (n *noted) Reset(int64)               { n.published = true }

// TestOrderOfSubscribers emits a commit that changes everything, and looks after each subscriber
// which effects there are. Then it lets each two whose order matters change places: the same look
// must find that.
func TestOrderOfSubscribers(t *testing.T) {
	if broken := brokenOrders(t, nil); len(broken) > 0 {
		t.Errorf("orders that do not hold: %q", broken)
	}
	for _, o := range orders {
		broken := brokenOrders(t, func(list []apply.Subscriber) {
			i := slices.IndexFunc(list, func(s apply.Subscriber) bool { return s.Name == o.first })
			j := slices.IndexFunc(list, func(s apply.Subscriber) bool { return s.Name == o.then })
			list[i], list[j] = list[j], list[i]
		})
		if !slices.Contains(broken, o.first+" before "+o.then) {
			t.Errorf("%s and %s changed places, and only these orders were found broken: %q",
				o.first, o.then, broken)
		}
	}
}

// brokenOrders returns the orders that do not hold among the subscribers of a member, after change
// has changed their list.
func brokenOrders(t *testing.T, change func([]apply.Subscriber)) (broken []string) {
	for _, enabled := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r, err := Open(config(memfs.New()))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Stop(context.Background())
			for _, o := range emitEverything(t, r, enabled, change) {
				if !slices.Contains(broken, o) {
					broken = append(broken, o)
				}
			}
		})
	}
	return broken
}

// emitEverything emits a commit that changes everything in a member that is not started, and
// returns the orders that do not hold. Auth is enabled from the commit on, or still disabled.
func emitEverything(t *testing.T, r *Replica, enabled bool,
	change func([]apply.Subscriber)) (broken []string) {
	put := goPut(t.Context(), r, "k")
	synctest.Wait()
	header, err := fsm.ParseHeader(r.queue.NextGroup(1))
	if err != nil {
		t.Fatal(err)
	}
	g := r.queue.Claim(header.Sequence)
	g.AddResult(fsm.Result{Put: &kv.PutResult{}})
	c := &apply.Commit{
		At:           history.Applied{Term: 1, Index: r.Applied() + 1},
		Revision:     r.Header().Revision + 1,
		Events:       []kv.Event{{}},
		Alarms:       []kv.Alarm{{MemberID: r.memberID, Type: kv.AlarmCorrupt}},
		Versions:     kv.Versions{Cluster: kv.Version{Major: 3, Minor: 1}},
		Leases:       lease.New(),
		UsersChanged: true,
		Tokens:       []fsm.Token{{Index: 9, Seen: kv.Seen{User: "root"}}},
		Groups:       []*proposal.Group{g},
	}
	if c.Members, _, err = r.Membership().Change(cluster.Change{Op: cluster.Add,
		Member: cluster.Member{ID: 77, PeerURLs: []string{"http://other:2380"}}}); err != nil {
		t.Fatal(err)
	}
	if c.Users, err = auth.Restore(enabled, 5,
		[]auth.User{{Name: "root", NoPassword: true, Roles: []string{auth.RootRole}}},
		[]auth.Role{{Name: auth.RootRole}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Leases.Grant(kv.LeaseGrantRequest{ID: 7, TTL: 100}, 1); err != nil {
		t.Fatal(err)
	}
	c.Lineage, _ = r.Source.Claims().Claim(lineage.Claim{Term: 1, ID: lineage.ID{1}})

	hub := &noted{}
	subs := r.subscribers(hub)
	if change != nil {
		change(subs.After)
	}
	announced := r.Access.AuthChanged()
	waiting := r.applied.Join(c.At.Index)
	// The effects, by the names of the subscribers that have them.
	effects := map[string]func() bool{
		"withhold": func() bool { return hub.withheld || !enabled },
		"events":   func() bool { return hub.published },
		"members":  func() bool { return r.Membership() == c.Members },
		"alarms":   func() bool { return len(r.Alarms.Active()) > 0 },
		"level":    func() bool { return r.API.Versions() == c.Versions },
		"lineage":  func() bool { s, _ := r.Source.Lineage(); return s == c.Lineage },
		"leases":   func() bool { return r.Leases.Stats().Granted > 0 },
		"tokens":   func() bool { return r.Access.Tokens().Tokens > 0 || !enabled },
		"announce": func() bool { return isClosed(announced) },
		"position": func() bool { return r.Applied() == c.At.Index || isClosed(waiting.Done()) },
		"answers":  func() bool { return !pending(put) },
	}
	for _, s := range subs.Before {
		s.Follow(c)
	}
	if r.Access.Revision() != c.Users.Revision() {
		t.Error("the new rights do not count before the commit can be read")
	}
	for _, s := range subs.After {
		s.Follow(c)
		synctest.Wait()
		for _, o := range orders {
			if effects[o.then]() && !effects[o.first]() {
				broken = append(broken, o.first+" before "+o.then)
			}
		}
	}
	for name, there := range effects {
		if !there() {
			t.Errorf("%s has no effect", name)
		}
	}
	if err := <-put; err != nil {
		t.Error(err)
	}
	if wrong, _ := r.Untrusted(); !wrong {
		broken = append(broken, "members before alarms") // the member counted as alone
	}
	if !enabled && r.Access.Tokens().Tokens > 0 {
		broken = append(broken, "tokens before announce")
	}
	return broken
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestRightsBeforeData: new rights are in force before the data of their commit can be read, and
// everything else follows after that.
func TestRightsBeforeData(t *testing.T) {
	r, err := Open(config(memfs.New()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop(context.Background())
	subs, before := r.subscribers(r.hub), int64(0)
	subs.Before = append(subs.Before,
		apply.Subscriber{Name: "probe",
			Follow: func(*apply.Commit) { before = r.Header().Revision }})
	subs.After = slices.Insert(subs.After, 0,
		apply.Subscriber{Name: "probe", Follow: func(c *apply.Commit) {
			if now := r.Header().Revision; now != before+int64(len(c.Events)) ||
				now != c.Revision &&
					len(c.Events) > 0 {
				t.Errorf("revision %d, then %d after a commit of %d events up to %d", before, now,
					len(c.Events), c.Revision)
			}
		}})
	r.applier.SetSubscribers(subs)
	r.Start()
	<-r.Ready()
	for range 10 {
		mustPut(t, r, "k", "v")
	}
}
