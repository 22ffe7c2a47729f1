package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/test/proc"
)

// TestDoctorSicknesses brings about one sickness after the other in one cluster of real members, and compares everything that
// doctor prints about each, and about the healthy cluster between them.
func TestDoctorSicknesses(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	const mib = 1 << 20
	g := start(t, 3, steady, unchecked, "--corrupt-check-time=0", "--scrub-pause=10ms", "--scrub-bytes-per-second=1000000000", fmt.Sprint("--quota-backend-bytes=", 24*mib))
	g.fill()
	first, last := g.list[0], g.list[2]
	asked := "--endpoints=" + first.Addr()
	sick := func(name string) {
		t.Helper()
		g.doctor(name, patient, unhurried, asked)
	}
	sick("healthy")
	g.hurried()
	w := g.write()
	w.more(100)
	sick("healthy")
	w.more(100)
	sick("healthy")
	w.check()

	// Alarms that somebody raised by hand.
	alarm := func(what pb.AlarmRequest_AlarmAction, kind pb.AlarmType, m *member) {
		t.Helper()
		if _, err := pb.NewMaintenanceClient(first.Dial()).Alarm(proc.Context(t), &pb.AlarmRequest{Action: what, Alarm: kind, MemberID: m.id(g)}); err != nil {
			t.Fatal(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_CORRUPT, last)
	sick("alarm")
	alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_CORRUPT, last)

	// A client that does not read, while values are written up to the limit.
	watch, err := pb.NewWatchClient(last.Dial()).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("large"), RangeEnd: []byte("largf"), StartRevision: 1}}}); err != nil {
		t.Fatal(err)
	}
	large := func(n int) error {
		_, err := first.client.Put(proc.Context(t), fmt.Sprintf("large%02d", n), strings.Repeat(string(rune('a'+n)), mib))
		return err
	}
	for n := range 20 {
		if err := large(n); err != nil {
			t.Fatal(err)
		}
	}
	sick("stalled-and-quota-near")
	if err := watch.CloseSend(); err != nil {
		t.Fatal(err)
	}
	n := 20
	for ; err == nil && n < 26; n++ {
		err = large(n)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("put %d: %v", n, err)
	}
	sick("stalled-and-quota-reached")
}
