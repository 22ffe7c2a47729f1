package survey

import (
	"context"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
)

// The checks of package health read the API's messages: the console gets them from its members
// without the client library. These functions build them from the library's answers.

func headerMessage(h client.Header) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID,
		Revision: h.Revision, RaftTerm: h.RaftTerm}
}

// Status returns the status that the member of at reports.
func Status(ctx context.Context, at *client.Client) (*etcdserverpb.StatusResponse, error) {
	s, err := at.Maintenance().Status(ctx)
	if err != nil {
		return nil, err
	}
	m := &etcdserverpb.StatusResponse{
		Header: headerMessage(s.Header), Version: s.Version, StorageVersion: s.StorageVersion,
		DbSize: s.DBSize, DbSizeInUse: s.DBSizeInUse, DbSizeQuota: s.DBSizeQuota,
		Leader: s.Leader, RaftIndex: s.RaftIndex, RaftAppliedIndex: s.RaftAppliedIndex,
		RaftTerm:  s.RaftTerm,
		IsLearner: s.IsLearner, Errors: s.Errors,
	}
	if s.DowngradeTarget != "" {
		m.DowngradeInfo = &etcdserverpb.DowngradeInfo{Enabled: true,
			TargetVersion: s.DowngradeTarget}
	}
	return m, nil
}

// HashKV returns the hash of the keys of the member of at.
func HashKV(ctx context.Context, at *client.Client,
	revision int64) (*etcdserverpb.HashKVResponse, error) {
	h, err := at.Maintenance().HashKV(ctx, revision)
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.HashKVResponse{Header: headerMessage(h.Header), Hash: h.Hash,
		CompactRevision: h.CompactRevision, HashRevision: h.Revision}, nil
}

// memberMessages returns members in the order of their names.
func memberMessages(list []client.Member) []*etcdserverpb.Member {
	out := make([]*etcdserverpb.Member, len(list))
	for i, m := range list {
		out[i] = &etcdserverpb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs,
			ClientURLs: m.ClientURLs, IsLearner: m.IsLearner}
	}
	slices.SortFunc(out,
		func(a, b *etcdserverpb.Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}
