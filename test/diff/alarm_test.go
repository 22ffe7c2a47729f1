package diff

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestAlarms compares what alarms list, and what they refuse. The alarm NOSPACE is of members that
// do not exist, since a member of Vigil clears its own when there is space; CORRUPT is of the
// member itself, since it stops only the member that it names. etcd's of member 0, which says that
// members differ and the wrong one is unknown, stops all of them; Vigil, which compares members by
// default, continues.
func TestAlarms(t *testing.T) {
	p := NewPair(t)
	alarm := func(action pb.AlarmRequest_AlarmAction, typ pb.AlarmType, member uint64) {
		p.Do(&pb.AlarmRequest{Action: action, Alarm: typ, MemberID: member})
	}
	const (
		list, raise, clear = pb.AlarmRequest_GET, pb.AlarmRequest_ACTIVATE,
			pb.AlarmRequest_DEACTIVATE
		none, noSpace, corrupt = pb.AlarmType_NONE, pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT
	)
	self := p.Etcd.ids.member
	putOp := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put("k", "w")}}
	delOp := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: del("d",
		"")}}
	getOp := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: get("k")}}
	txnOp := func(r *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	everything := func() {
		alarm(list, none, 0)
		alarm(list, noSpace, 5)
		alarm(list, corrupt, 0)
		p.Do(&pb.StatusRequest{})
		p.Do(put("k", "v"))
		p.Do(put("d", "v"))
		p.Do(get("k"))
		p.Do(scan("a", "z"))
		p.Do(put("", "v"))
		p.Do(&pb.TxnRequest{Success: []*pb.RequestOp{putOp}})
		p.Do(&pb.TxnRequest{Success: []*pb.RequestOp{getOp}, Failure: []*pb.RequestOp{putOp}})
		p.Do(&pb.TxnRequest{Success: []*pb.RequestOp{delOp, getOp}})
		p.Do(&pb.TxnRequest{Success: []*pb.RequestOp{getOp}})
		p.Do(&pb.TxnRequest{})
		p.Do(&pb.TxnRequest{Success: []*pb.RequestOp{txnOp(&pb.TxnRequest{Failure: []*pb.RequestOp{putOp}})}})
		p.Do(&pb.TxnRequest{Success: []*pb.RequestOp{txnOp(&pb.TxnRequest{Failure: []*pb.RequestOp{delOp}})}})
		p.Do(del("d", ""))
		p.Do(&pb.CompactionRequest{Revision: p.Rev})
		p.Do(&pb.CompactionRequest{Revision: 1})
		p.Do(&pb.MemberListRequest{Linearizable: true})
	}
	everything()
	for _, a := range []struct {
		typ    pb.AlarmType
		member uint64
	}{{noSpace, 5}, {noSpace, 0}, {corrupt, self}, {77, 9}, {none, 5}} {
		alarm(raise, a.typ, a.member)
		alarm(raise, a.typ, a.member)
		everything()
		if a.member == 5 || a.member == self {
			p.Restart()
			everything()
		}
		alarm(clear, none, a.member)
		alarm(clear, a.typ, a.member+1)
		alarm(list, none, 0)
		alarm(clear, a.typ, a.member)
		alarm(clear, a.typ, a.member)
		everything()
	}
	// Both: what is corrupt comes first.
	alarm(raise, noSpace, 5)
	alarm(raise, corrupt, self)
	alarm(list, noSpace, 0)
	alarm(list, corrupt, 0)
	p.Do(put("k", "v"))
	p.Do(del("k", ""))
	p.Finish(t, &Tally{})
}
