package console

import (
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/health"
)

// dataCompared is why the console does not compare the data of members: each would read its whole store.
const dataCompared = "the console does not compare the data, because each member would read its whole store: vigilctl doctor does"

// examine runs the checks of the command doctor over the newest readings.
func (c *Console) examine(members []*etcdserverpb.Member, alarms []*etcdserverpb.AlarmMember, last map[uint64]*reading) *health.Diagnosis {
	e := &health.Examination{Round: &health.Round{At: time.Now(), Members: members, Alarms: alarms, ClusterID: c.Self.Cluster},
		Now: time.Now(), Limits: health.Defaults(), Omit: map[string]string{"data": dataCompared}}
	for _, m := range members {
		r := last[m.ID]
		if r == nil {
			continue
		}
		x := r.Reading
		x.Advertised, x.Endpoint = m.ID, endpoint(m)
		e.Readings = append(e.Readings, x)
		e.Clocks = append(e.Clocks, r.clock)
		e.Flags = append(e.Flags, r.settings)
		// The metrics have the certificates of all listeners.
		e.Expiries, e.CertErrs = append(e.Expiries, time.Time{}), append(e.CertErrs, nil)
	}
	return e.Diagnose()
}

// endpoint returns the address that a member advertises, for commands in the advice.
func endpoint(m *etcdserverpb.Member) string {
	if len(m.ClientURLs) > 0 {
		return m.ClientURLs[0]
	}
	return m.Name
}
