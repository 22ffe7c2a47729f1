package server

import (
	"context"
	"errors"

	"vigil/httpd"
	"vigil/kv"
	"vigil/replica"
	"vigil/rpc"
)

// memberView shows the replica to the services, in their words.
type memberView struct {
	replica *replica.Replica
	cfg     *Config
}

func (v *memberView) Header() kv.Header { return v.replica.Header() }
func (v *memberView) Reclaim()          { v.replica.Reclaim() }
func (v *memberView) Leader() uint64    { return v.replica.Status().Leader }
func (v *memberView) IsLearner() bool   { return v.replica.Status().Learner }

// Alarms lists the active alarms by name, for the health checks.
func (v *memberView) Alarms() []string {
	var names []string
	for _, a := range v.replica.ActiveAlarms() {
		names = append(names, rpc.AlarmName(a.Type))
	}
	return names
}

// Read reads a key that need not exist, for the health checks.
func (v *memberView) Read(ctx context.Context, serializable bool) error {
	_, err := v.replica.Range(ctx, &kv.RangeRequest{Key: []byte("health"), CountOnly: true, Serializable: serializable})
	if err != nil {
		return errors.New(rpc.ErrorText(err))
	}
	return nil
}

func (v *memberView) Status() rpc.Status {
	s := v.replica.Status()
	return rpc.Status{
		Version:          APIVersion,
		StorageVersion:   apiStorageVersion,
		DBSize:           s.Size,
		DBSizeInUse:      s.InUse,
		DBSizeQuota:      v.cfg.QuotaBackendBytes,
		Alarms:           v.replica.ActiveAlarms(),
		RaftIndex:        s.RaftIndex,
		RaftAppliedIndex: s.Applied,
	}
}

func (v *memberView) Members(ctx context.Context, linearizable bool) ([]rpc.MemberInfo, error) {
	members, err := v.replica.Members(ctx, linearizable)
	if err != nil {
		return nil, err
	}
	infos := make([]rpc.MemberInfo, len(members))
	for i, m := range members {
		infos[i] = rpc.MemberInfo{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.Learner}
	}
	return infos, nil
}

func versions() httpd.Versions {
	return httpd.Versions{Server: APIVersion, Cluster: apiClusterVersion, Storage: apiStorageVersion, Vigil: Version}
}
