package server

import (
	"context"
	"errors"
	"time"

	"vigil/internal/edge/httpd"
	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/clusterapi"
	"vigil/internal/edge/rpc/maintenanceapi"
	"vigil/internal/kv"
	"vigil/internal/member/replica"
	"vigil/internal/state/cluster"
)

// memberView adapts the replica to the interfaces of the services.
type memberView struct {
	m       *Member
	replica *replica.Replica
	cfg     *Config
}

func (v *memberView) Header() kv.Header                 { return v.replica.Header() }
func (v *memberView) Reclaim(ctx context.Context) error { return v.replica.Reclaim(ctx) }
func (v *memberView) Leader() uint64                    { return v.replica.Leadership.Leader() }

// IsLearner implements rpc.Member. The services call it for each request.
func (v *memberView) IsLearner() bool {
	self, _ := v.replica.Membership().Member(v.replica.Header().MemberID)
	return self.Learner
}

// Trusted implements rpc.Member.
func (v *memberView) Trusted() bool {
	wrong, _ := v.replica.Untrusted()
	return !wrong
}

// Alarms lists the active alarms by name, for the health checks. The alarm that another member is
// corrupt does not make this member unhealthy.
func (v *memberView) Alarms() []string {
	var names []string
	self := v.replica.Header().MemberID
	for _, a := range v.replica.Alarms.Active() {
		if a.Type == kv.AlarmCorrupt && a.MemberID != self && a.MemberID != 0 {
			continue
		}
		names = append(names, a.Type.String())
	}
	return names
}

// waitsTooLong is how long the member may wait for disk space before the health checks report that
// without a read: the read would only time out.
const waitsTooLong = time.Second

// Read reads a key, which need not exist, for the health checks. A linearizable read fails at once
// if the member's files are gone or it waits for disk space.
func (v *memberView) Read(ctx context.Context, serializable bool) error {
	if s := v.replica.Status(); !serializable {
		if s.Away != "" {
			return errors.New(maintenanceapi.AwayText + s.Away)
		}
		for _, since := range []time.Time{s.ApplyWaits, s.LogWaits} {
			if !since.IsZero() && time.Since(since) > waitsTooLong {
				st := v.Status()
				return errors.New(st.DiskText())
			}
		}
	}
	ctx = kv.AsMember(ctx)
	_, err := v.replica.Range(ctx,
		&kv.RangeRequest{Key: []byte("health"), CountOnly: true, Serializable: serializable})
	if err != nil {
		return errors.New(apierror.Text(err))
	}
	return nil
}

func (v *memberView) Status() maintenanceapi.Status {
	s := v.replica.Status()
	return maintenanceapi.Status{
		Version:          APIVersion,
		StorageVersion:   v.replica.API.Versions().Cluster.Full(),
		DBSize:           s.Size,
		DBSizeInUse:      s.InUse,
		DBSizeQuota:      v.cfg.QuotaBackendBytes,
		Alarms:           v.replica.Alarms.Active(),
		RaftIndex:        s.RaftIndex,
		RaftAppliedIndex: s.Applied,
		DiskFull:         s.DiskFull,
		ApplyWaits:       !s.ApplyWaits.IsZero(),
		LogWaits:         !s.LogWaits.IsZero(),
		Away:             s.Away,
		LeaderLost:       s.LeaderLost,
	}
}

func (v *memberView) Members(ctx context.Context,
	linearizable bool) ([]clusterapi.MemberInfo, error) {
	return infos(v.replica.Members.List(ctx, linearizable))
}

// infos converts members to the type of the services.
func infos(members []cluster.Member, err error) ([]clusterapi.MemberInfo, error) {
	if err != nil {
		return nil, err
	}
	out := make([]clusterapi.MemberInfo, len(members))
	for i, m := range members {
		out[i] = info(m)
	}
	return out, nil
}

func info(m cluster.Member) clusterapi.MemberInfo {
	return clusterapi.MemberInfo{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs,
		ClientURLs: m.ClientURLs,
		IsLearner:  m.Learner}
}

func (v *memberView) AddMember(ctx context.Context, peerURLs []string,
	learner bool) (clusterapi.MemberInfo, []clusterapi.MemberInfo, error) {
	m, all, err := v.replica.Members.AddMember(ctx, peerURLs, learner)
	if err != nil {
		return clusterapi.MemberInfo{}, nil, err
	}
	list, err := infos(all, nil)
	return info(m), list, err
}

func (v *memberView) RemoveMember(ctx context.Context, id uint64) ([]clusterapi.MemberInfo, error) {
	return infos(v.replica.Members.RemoveMember(ctx, id))
}

func (v *memberView) UpdateMember(ctx context.Context, id uint64,
	peerURLs []string) ([]clusterapi.MemberInfo, error) {
	return infos(v.replica.Members.UpdateMember(ctx, id, peerURLs))
}

func (v *memberView) PromoteMember(ctx context.Context,
	id uint64) ([]clusterapi.MemberInfo, error) {
	return infos(v.m.promote(ctx, id))
}

func (v *memberView) MoveLeader(ctx context.Context, to uint64) error {
	return v.replica.Leadership.MoveLeader(ctx, to)
}

// Snapshot implements maintenanceapi.Snapshots.
func (v *memberView) Snapshot(ctx context.Context) (maintenanceapi.Snapshot, error) {
	level := v.replica.API.Versions().Cluster.Full()
	b, err := v.replica.Backup(ctx, level, level)
	if err != nil {
		return nil, err
	}
	return backup{b, level}, nil
}

// backup adapts a backup to maintenanceapi.Snapshot.
type backup struct {
	*replica.Backup
	version string
}

func (b backup) Version() string { return b.version }

// versions returns the versions for /version. The storage version is the level of the cluster.
func (v *memberView) versions() httpd.Versions {
	level := v.replica.API.Versions().Cluster.Full()
	return httpd.Versions{Server: APIVersion, Cluster: level, Storage: level, Vigil: Version}
}
