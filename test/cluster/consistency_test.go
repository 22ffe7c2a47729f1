package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"vigil/test/proc"
)

// often has members compared often; unchecked lets a member with other data serve until that is
// noticed.
const (
	often     = "--corrupt-check-time=300ms"
	unchecked = "--feature-gates=InitialCorruptCheck=false"
)

// onlyVigil: etcd compares members only with a flag, and these tests change files.
func onlyVigil(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("this is about how Vigil compares members")
	}
}

// differ gives a stopped member another value of a key than the others have, with right checksums.
func (g *group) differ(m *member, value string) {
	g.t.Helper()
	if code := m.Stop(); code != 0 {
		g.t.Fatalf("exit code %d", code)
	}
	damage(g.t, m.DataDir(), "the value of k", value)
}

// fill writes the key that differ is about, among others, and waits until all members have it.
func (g *group) fill() {
	for i := range 100 {
		g.put(g.list[i%len(g.list)], fmt.Sprintf("n%d", i), "x")
	}
	g.put(g.list[0], "k", "the value of k")
	g.agree()
}

// corrupt returns the ids that CORRUPT names, as a member knows them.
func (g *group) corrupt(m *member) []uint64 {
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	res, err := m.client.AlarmList(ctx)
	if err != nil {
		return []uint64{1}
	}
	var ids []uint64
	for _, a := range res.Alarms {
		ids = append(ids, a.MemberID)
	}
	return ids
}

func (g *group) named(m *member, ids ...uint64) {
	g.t.Helper()
	g.until(fmt.Sprintf("alarms for %x at %s", ids, m.name),
		func() bool { return slices.Equal(g.corrupt(m), ids) })
}

// A member whose disk holds another value, with a right checksum, is found out by comparison,
// named, and stops serving; the others go on. It is replaced by an empty one, and the alarm clears
// itself.
func TestMemberThatDiffersIsReplaced(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 3, often, unchecked, steady)
	g.fill()
	lead := g.leader()
	bad := g.others(lead)[0]
	id := bad.id(g)
	g.differ(bad, "THE VALUE OF K")
	bad.Restart()
	watch := bad.client.Watch(t.Context(), "k", clientv3.WithRev(1))
	for _, m := range g.list {
		g.named(m, id)
	}
	g.until("the end of its watches", func() bool {
		for {
			select {
			case res, open := <-watch:
				if !open || errors.Is(res.Err(), rpctypes.ErrCorrupt) {
					return true
				}
			default:
				return false
			}
		}
	})
	for _, m := range g.list {
		for service, ready := range map[string]bool{"": m != bad, "readiness": m != bad,
			"liveness": true} {
			r, err := healthpb.NewHealthClient(m.client.ActiveConnection()).Check(proc.Context(t),
				&healthpb.HealthCheckRequest{Service: service})
			if err != nil || r.Status == healthpb.HealthCheckResponse_SERVING != ready {
				t.Errorf("health of %s, service %q: %v, %v", m.name, service, r, err)
			}
		}
	}
	for _, opts := range [][]clientv3.OpOption{nil, {clientv3.WithSerializable()}} {
		if _, err := bad.client.Get(proc.Context(t), "k", opts...); !errors.Is(err,
			rpctypes.ErrCorrupt) {
			t.Errorf("a read of what differs: %v", err)
		}
	}
	if _, err := bad.client.Put(proc.Context(t), "k", "v"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("a write: %v", err)
	}
	if res := <-bad.client.Watch(t.Context(), "k"); !errors.Is(res.Err(), rpctypes.ErrCorrupt) {
		t.Errorf("a watch: %v", res.Err())
	}
	for _, m := range g.others(bad) {
		if res, err := m.client.Get(proc.Context(t), "k"); err != nil ||
			string(res.Kvs[0].Value) != "the value of k" {
			t.Errorf("a read at %s: %v, %v", m.name, res, err)
		}
		g.put(m, "more", m.name)
	}
	said := ""
	g.until("line about the difference", func() bool {
		log := ""
		for _, m := range g.others(bad) {
			log += m.Log().String()
		}
		said = line(log, "the data of a member differ")
		return strings.HasSuffix(said, "\n")
	})
	for _, want := range []string{fmt.Sprintf("%x", id), `"majority-hash"`, `"revision"`} {
		if !strings.Contains(said, want) {
			t.Errorf("no %s in %s", want, said)
		}
	}
	t.Log(said)

	// The way back that docs/operations/corruption.md describes.
	g.until("the removal", func() bool {
		// All must have been connected for five seconds.
		_, err := lead.client.MemberRemove(proc.Context(t), id)
		if err != nil && !errors.Is(err, rpctypes.ErrUnhealthy) {
			t.Fatal(err)
		}
		return err == nil
	})
	if code := bad.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := os.RemoveAll(bad.DataDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := lead.client.MemberAdd(proc.Context(t), []string{bad.peerURL}); err != nil {
		t.Fatal(err)
	}
	g.drop(bad)
	bad.client = nil
	g.join(bad)
	g.agree()
	g.named(bad)
	if res, err := bad.client.Get(proc.Context(t), "k"); err != nil ||
		string(res.Kvs[0].Value) != "the value of k" {
		t.Errorf("the replaced member has %v, %v", res, err)
	}
}

// A member that starts with other data than a majority says so, raises the alarm and exits.
func TestMemberThatDiffersDoesNotStart(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 3, "--corrupt-check-time=0", steady)
	g.fill()
	lead := g.leader()
	bad := g.others(lead)[0]
	id := bad.id(g)
	g.differ(bad, "THE VALUE OF K")
	bad.Launch()
	if code := bad.Wait(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	log := bad.Log().String()
	if !strings.Contains(log, "found data inconsistency with peers") ||
		strings.Contains(log, "ready to serve client requests") {
		t.Errorf("its log:\n%s", bad.Log().Tail(20))
	}
	t.Log(line(log, "stopping"))
	g.named(lead, id)
	for _, m := range g.others(bad) {
		g.put(m, "more", m.name)
	}
	// The others may start as ever, though one is away and one says it differs.
	g.drop(bad)
	m := g.others(lead)[0]
	m.Stop()
	m.Restart()
	g.agree()
}

// Two members, and three that all differ: the correct member is unknown, and all continue.
func TestWithoutMajorityMembersGoOn(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			g := start(t, n, often)
			g.fill()
			for _, m := range g.list {
				m.Stop()
			}
			for i, m := range g.list[1:] {
				damage(t, m.DataDir(), "the value of k", fmt.Sprintf("The value of %d", i))
			}
			// All at once: the initial check finds them different, and does not keep them.
			for _, m := range g.list {
				m.Launch()
			}
			for _, m := range g.list {
				m.Ready()
			}
			for _, m := range g.list {
				g.named(m, 0)
				g.put(m, "more", m.name)
				if _, err := m.client.Get(proc.Context(t), "k"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// line returns the first line of a log that has a text.
func line(log, text string) string {
	for l := range strings.Lines(log) {
		if strings.Contains(l, text) {
			return l
		}
	}
	return "no line with " + text
}
