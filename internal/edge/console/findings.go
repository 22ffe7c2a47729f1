package console

import (
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/health"
)

// dataCompared is the reason why the members' data are not compared all the time.
const dataCompared = "the data are compared when somebody asks for it, because each member reads its whole store then"

// examination is the input of the checks of the command doctor, from the newest readings. It does
// not contain the comparison of data.
func (c *Console) examination(members []*etcdserverpb.Member,
	last map[uint64]*reading) *health.Examination {
	e := &health.Examination{Round: &health.Round{At: time.Now(), Members: members,
		ClusterID: c.Self.Cluster},
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
	e.FindAlarms()
	return e
}

// endpoint returns a member's advertised address, for commands in the advice.
func endpoint(m *etcdserverpb.Member) string {
	if len(m.ClientURLs) > 0 {
		return m.ClientURLs[0]
	}
	return m.Name
}
