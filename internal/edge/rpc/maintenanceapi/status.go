package maintenanceapi

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/kv"
)

// Status is the state of the member beyond the header of a response.
type Status struct {
	// Version is the level of the API, StorageVersion the level of the data.
	Version, StorageVersion string
	// DBSize is the size of the history on disk, DBSizeInUse the part of it that is live,
	// DBSizeQuota the limit, all in bytes.
	DBSize, DBSizeInUse, DBSizeQuota int64
	// RaftIndex is the commit index.
	RaftIndex, RaftAppliedIndex uint64
	// Alarms are the active ones.
	Alarms []kv.Alarm
	// DiskFull is set while puts are rejected because the disk of this member is full.
	DiskFull bool
	// ApplyWaits is set while committed entries cannot be applied because the disk is full,
	// LogWaits while the raft log accepts no entries.
	ApplyWaits, LogWaits bool
	// Away names the files of the member that their paths no longer lead to, "" for none. Meanwhile
	// the member accepts no writes.
	Away string
	// LeaderLost is when the member lost its last leader, the zero time if it knows one, or never
	// did.
	LeaderLost time.Time
}

// Texts of errors in the status, which etcd does not have.
const (
	// AwayText begins the error of a member whose files are not where their paths lead.
	AwayText = "vigil: files of the data directory are gone: "
	// NoLeaderText and a duration are an error of a member without a leader, next to etcd's.
	NoLeaderText = "vigil: there has been no leader for "
	// diskFullText begins the error of a member whose disk is full.
	diskFullText = "vigil: the disk is full: "
)

// DiskText returns what a member cannot do because its disk is full, "" if it is not.
func (st *Status) DiskText() string {
	switch n := st.RaftIndex - min(st.RaftAppliedIndex, st.RaftIndex); {
	case st.LogWaits && st.ApplyWaits:
		return fmt.Sprintf(diskFullText+
			"%d committed entries wait, the raft log takes no others, and nothing is "+
			"acknowledged until it has free space", n)
	case st.LogWaits:
		return diskFullText +
			"the raft log takes no entries, and nothing is acknowledged until it has free space"
	case st.ApplyWaits:
		return fmt.Sprintf(diskFullText+
			"%d committed entries wait, and nothing is applied until it has free space", n)
	case st.DiskFull:
		return diskFullText + "puts are rejected until it has free space"
	}
	return ""
}

func (a *API) status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return a.Status(), nil
}

// Status returns the answer of the method Status.
func (a *API) Status() *pb.StatusResponse {
	m := a.o.Member
	h, st := m.Header(), m.Status()
	res := &pb.StatusResponse{
		Header:           gate.Header(h),
		Version:          st.Version,
		DbSize:           st.DBSize,
		DbSizeInUse:      st.DBSizeInUse,
		DbSizeQuota:      st.DBSizeQuota,
		Leader:           m.Leader(),
		RaftIndex:        st.RaftIndex,
		RaftTerm:         h.Term,
		RaftAppliedIndex: st.RaftAppliedIndex,
		IsLearner:        m.IsLearner(),
		StorageVersion:   st.StorageVersion,
		DowngradeInfo:    &pb.DowngradeInfo{},
	}
	if v := a.o.Versions; v != nil && v.Versions().Target != (kv.Version{}) {
		res.DowngradeInfo.Enabled, res.DowngradeInfo.TargetVersion = true,
			v.Versions().Target.Full()
	}
	if res.Leader == 0 {
		res.Errors = append(res.Errors, apierror.Text(kv.ErrNoLeader))
		if !st.LeaderLost.IsZero() {
			res.Errors = append(res.Errors,
				NoLeaderText+max(time.Since(st.LeaderLost).Round(time.Second),
					time.Second).String())
		}
	}
	for _, x := range st.Alarms {
		res.Errors = append(res.Errors, encodeAlarm(x).String())
	}
	if st.Away != "" {
		res.Errors = append(res.Errors, AwayText+st.Away)
	}
	if text := st.DiskText(); text != "" {
		res.Errors = append(res.Errors, text)
	}
	return res
}
