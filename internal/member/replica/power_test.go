package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vigil/internal/kv"
)

// powerLossesOf is how many outcomes of one loss of power are tried. The least that a disk may hold
// is among them.
const powerLossesOf = 12

// losePower ends a member as a loss of power does, and passes what its disk may hold afterwards to
// check, several times.
func (g *group3) losePower(r *Replica, check func(alone *Replica) error) {
	g.t.Helper()
	for i, m := range g.list {
		if m != r {
			continue
		}
		g.net.setCut(r.memberID, true)
		for n := range uint64(powerLossesOf) {
			c := g.cfg[i]
			c.FS = g.fs[i].Crash(rand.New(rand.NewPCG(n, 1)))
			e := &end{net: newMesh()}
			alone, err := openWith(c, e)
			if err != nil {
				g.t.Fatalf("outcome %d: open: %v", n, err)
			}
			e.id.Store(alone.memberID)
			alone.Start()
			err = check(alone)
			now, cancel := context.WithCancel(context.Background())
			cancel()
			alone.Stop(now)
			if err != nil {
				g.t.Fatalf("outcome %d: %v", n, err)
			}
		}
		return
	}
}

// After the last removal down to one voter is acknowledged, to whomever, the voter that is left
// needs no other member: a loss of power does not make it forget that the removal is committed.
func TestTheLastRemovalOutlivesALossOfPower(t *testing.T) {
	for _, asked := range []string{"the one that stays, which leads",
		"the one that stays, which follows", "the one that goes, which follows",
		"the one that goes, which leads"} {
		t.Run(asked, func(t *testing.T) {
			g := startGroup(t, func(_ int, c *Config) {
				c.LaxReconfig = true
				// Nothing else makes the log or the store durable.
				c.SnapshotCount, c.SnapshotCatchUpEntries = 1<<30, 1<<30
			})
			lead := g.leader()
			third := g.other()
			if _, err := lead.Members.RemoveMember(t.Context(), third.memberID); err != nil {
				t.Fatal(err)
			}
			g.net.setCut(third.memberID, true)
			lead = g.leader()
			var other *Replica
			for _, r := range g.list {
				if r != lead && r != third {
					other = r
				}
			}
			stays, goes, ask := lead, other, lead
			switch asked {
			case "the one that stays, which follows":
				stays, goes, ask = other, lead, other
			case "the one that goes, which follows":
				ask = other
			case "the one that goes, which leads":
				stays, goes, ask = other, lead, lead
			}
			stop := g.reportRemoval(stays, goes)
			defer stop()
			if _, err := ask.Members.RemoveMember(t.Context(), goes.memberID); err != nil {
				t.Fatal(err)
			}
			g.losePower(stays, func(r *Replica) error {
				select {
				case <-r.Ready():
				case err := <-r.Failed():
					return err
				case <-time.After(5 * time.Second):
					return fmt.Errorf("no leader after 5 s: %d members",
						len(r.Membership().Members()))
				}
				_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")})
				return err
			})
		})
	}
}

// reportRemoval does what the transport does between members: goes hears from stays that it was
// removed, once stays has applied that.
func (g *group3) reportRemoval(stays, goes *Replica) (stop func()) {
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil && !stays.Membership().Removed(goes.memberID) {
			time.Sleep(time.Millisecond) // polls
		}
		goes.Members.NoteRemoved(stays.memberID)
	}()
	return func() { cancel(); <-done }
}

// digest is what a member holds of all replicated state, from memory.
func digest(r *Replica) string {
	st, v := r.Status(), r.Access
	return fmt.Sprint("revision ", st.Revision, " compact ",
		r.current.Load().Store.CompactRevision(), " members ", r.Membership().Members(),
		" alarms ", r.Alarms.Active(), " leases ", r.LeaseState().All(), " auth ", v.AuthEnabled(),
		v.Revision(), " versions ", r.API.Versions())
}

// Whatever was answered holds after all members have lost power at the moment of the answer, and
// the members that are left find a leader: no kind of answer rests on something that is in the page
// cache only.
func TestAnswersOutliveALossOfPowerOfAll(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	g := startGroup(t, func(_ int, c *Config) {
		c.LaxReconfig = true
		// Nothing that is not asked for makes the log or the store durable.
		c.SnapshotCount, c.SnapshotCatchUpEntries, c.BcryptCost = 1<<30, 1<<30, 4
	})
	var learner uint64
	sick := g.list[0].memberID
	auth := func(req kv.AuthRequest) func(r *Replica) error {
		return func(r *Replica) error {
			_, err := r.Access.ChangeAuth(t.Context(), &req)
			return err
		}
	}
	alarm := func(raise bool) func(r *Replica) error {
		return func(r *Replica) error {
			_, err := r.Alarms.ChangeAlarm(t.Context(),
				kv.AlarmChange{Clear: !raise,
					Alarm: kv.Alarm{MemberID: sick, Type: kv.AlarmNoSpace}})
			return err
		}
	}
	steps := []struct {
		what string
		do   func(r *Replica) error
	}{
		{"put", func(r *Replica) error {
			_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("a"), Value: []byte("1")})
			return err
		}},
		{"lease grant", func(r *Replica) error {
			_, err := r.Leases.GrantLease(t.Context(), kv.LeaseGrantRequest{ID: 7, TTL: 10000})
			return err
		}},
		{"put with lease", func(r *Replica) error {
			_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("b"), Lease: 7})
			return err
		}},
		{"delete", func(r *Replica) error {
			_, err := r.DeleteRange(t.Context(), &kv.DeleteRangeRequest{Key: []byte("a")})
			return err
		}},
		{"compaction", func(r *Replica) error {
			_, err := r.Compact(t.Context(), &kv.CompactRequest{Revision: 3})
			return err
		}},
		{"lease revoke", func(r *Replica) error {
			_,
				err := r.Leases.RevokeLease(t.Context(), 7)
			return err
		}},
		{"alarm", alarm(true)},
		{"alarm disarmed", alarm(false)},
		{"role add", auth(kv.AuthRequest{Op: kv.RoleAdd, Role: "r"})},
		{"user add", auth(kv.AuthRequest{Op: kv.UserAdd, User: "u", NoPassword: true})},
		{"member add", func(r *Replica) error {
			m, _, err := r.Members.AddMember(t.Context(), []string{"http://127.0.0.1:29999"}, true)
			learner = m.ID
			return err
		}},
		{"member update", func(r *Replica) error {
			_, err := r.Members.UpdateMember(t.Context(), learner,
				[]string{"http://127.0.0.1:29998"})
			return err
		}},
		{"learner removed", func(r *Replica) error {
			_,
				err := r.Members.RemoveMember(t.Context(), learner)
			return err
		}},
		{"three to two", nil},
		{"two to one", nil},
		{"put of the last one", func(r *Replica) error {
			_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("c")})
			return err
		}},
	}
	for _, s := range steps {
		ask := g.list[rng.IntN(len(g.list))]
		gone := (*Replica)(nil)
		if s.do == nil {
			gone = g.list[rng.IntN(len(g.list))]
			var stops []func()
			for _, r := range g.list {
				if r != gone {
					stops = append(stops, g.reportRemoval(r, gone))
				}
			}
			_, err := ask.Members.RemoveMember(t.Context(), gone.memberID)
			for _, stop := range stops {
				stop()
			}
			if err != nil {
				t.Fatalf("%s, %d of them leading: %v", s.what, g.leader().memberID, err)
			}
			if ask == gone {
				ask = nil
			}
		} else if err := s.do(ask); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		crashed, cfg := g.fs, g.cfg
		for i := range crashed {
			crashed[i] = crashed[i].Crash(rng)
		}
		want := ""
		if ask != nil {
			want = digest(ask)
		}
		now, cancel := context.WithCancel(t.Context())
		cancel()
		list := g.list
		g.list, g.fs, g.cfg, g.ends = nil, nil, nil, nil
		for i, r := range list {
			g.net.setCut(r.memberID, true)
			r.Stop(now)
			if r != gone {
				g.net.setCut(r.memberID, false)
				c := cfg[i]
				c.FS = crashed[i]
				g.add(crashed[i], c)
			}
		}
		if _, err := g.list[0].node.AdvanceElection(2 * g.cfg[0].ElectionTicks); err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for _, r := range g.list {
			if err := r.Linearize(limited); err != nil {
				t.Fatalf("%s, then all lost power: %v", s.what, err)
			}
			got := digest(r)
			if want != "" && got != want {
				t.Errorf("%s, then all lost power:\n%s\nwas\n%s", s.what, got, want)
			}
			if m := r.Membership(); gone != nil && !m.Removed(gone.memberID) {
				t.Errorf("%s, then all lost power: the member is back", s.what)
			}
		}
		cancel()
	}
}
