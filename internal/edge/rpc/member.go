package rpc

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/kv"
)

func headerPB(h kv.Header) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: h.Revision, RaftTerm: h.Term}
}

// maintenance is the Maintenance service.
type maintenance struct{ svc *service }

// Status reports on this member alone.
func (m *maintenance) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return m.svc.status(), nil
}

// Status returns what Maintenance.Status answers.
func (s *Server) Status() *etcdserverpb.StatusResponse { return s.svc.status() }

func (s *service) status() *etcdserverpb.StatusResponse {
	h, st := s.cfg.Member.Header(), s.cfg.Member.Status()
	res := &etcdserverpb.StatusResponse{
		Header:           headerPB(h),
		Version:          st.Version,
		DbSize:           st.DBSize,
		DbSizeInUse:      st.DBSizeInUse,
		DbSizeQuota:      st.DBSizeQuota,
		Leader:           s.cfg.Member.Leader(),
		RaftIndex:        st.RaftIndex,
		RaftTerm:         h.Term,
		RaftAppliedIndex: st.RaftAppliedIndex,
		IsLearner:        s.cfg.Member.IsLearner(),
		StorageVersion:   st.StorageVersion,
		DowngradeInfo:    &etcdserverpb.DowngradeInfo{},
	}
	if v := s.cfg.Versions; v != nil && v.Versions().Target != (kv.Version{}) {
		res.DowngradeInfo.Enabled, res.DowngradeInfo.TargetVersion = true, v.Versions().Target.Full()
	}
	if res.Leader == 0 {
		res.Errors = append(res.Errors, apierror.Text(kv.ErrNoLeader))
		if !st.LeaderLost.IsZero() {
			res.Errors = append(res.Errors, NoLeaderText+max(time.Since(st.LeaderLost).Round(time.Second), time.Second).String())
		}
	}
	for _, a := range st.Alarms {
		res.Errors = append(res.Errors, alarmPB(a).String())
	}
	if st.Away != "" {
		res.Errors = append(res.Errors, AwayText+st.Away)
	}
	if text := st.DiskText(); text != "" {
		res.Errors = append(res.Errors, text)
	}
	return res
}

// AwayText begins the error in the status of a member whose files are not where their paths lead. etcd has no such error.
const AwayText = "vigil: files of the data directory are gone: "

// diskFullText begins the error in the status of a member whose disk is full. etcd has no such error.
const diskFullText = "vigil: the disk is full: "

// DiskText returns what a member cannot do because its disk is full, "" if it is not.
func (st *Status) DiskText() string {
	switch n := st.RaftIndex - min(st.RaftAppliedIndex, st.RaftIndex); {
	case st.LogWaits && st.ApplyWaits:
		return fmt.Sprintf(diskFullText+"%d committed entries wait, the raft log takes no others, and nothing is acknowledged until it has free space", n)
	case st.LogWaits:
		return diskFullText + "the raft log takes no entries, and nothing is acknowledged until it has free space"
	case st.ApplyWaits:
		return fmt.Sprintf(diskFullText+"%d committed entries wait, and nothing is applied until it has free space", n)
	case st.DiskFull:
		return diskFullText + "puts are rejected until it has free space"
	}
	return ""
}

// NoLeaderText and a duration are an error in the status of a member without a leader, next to etcd's.
const NoLeaderText = "vigil: there has been no leader for "

// memberList answers Cluster.MemberList, whose header has no revision.
func (s *service) memberList(ctx context.Context, r *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	members, err := s.cfg.Member.Members(ctx, r.Linearizable)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.MemberListResponse{Header: headerPB(s.header(0)), Members: membersPB(members)}, nil
}

func memberPB(m MemberInfo) *etcdserverpb.Member {
	return &etcdserverpb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner}
}

func membersPB(members []MemberInfo) []*etcdserverpb.Member {
	out := make([]*etcdserverpb.Member, len(members))
	for i, m := range members {
		out[i] = memberPB(m)
	}
	return out
}
