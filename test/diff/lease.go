package diff

import (
	"bytes"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// leaseSlack is by how many seconds the two sides may differ about what a lease has left: they are
// not asked at the same moment, and answers are in full seconds.
const leaseSlack = 2

// alike takes from two answers what cannot be the same: how the keys of a lease are ordered, which
// etcd leaves to chance, and a little time.
func alike(want, got proto.Message) {
	w, ok := want.(*pb.LeaseTimeToLiveResponse)
	g, same := got.(*pb.LeaseTimeToLiveResponse)
	if !ok || !same {
		return
	}
	slices.SortFunc(w.Keys, bytes.Compare)
	slices.SortFunc(g.Keys, bytes.Compare)
	if d := w.TTL - g.TTL; w.TTL >= 0 && g.TTL >= 0 && d >= -leaseSlack && d <= leaseSlack {
		g.TTL = w.TTL
	}
}
