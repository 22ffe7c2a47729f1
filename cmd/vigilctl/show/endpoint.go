package show

import (
	"fmt"
	"math"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Health tells whether an endpoint is healthy.
type Health struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Took     string `json:"took"`
	Error    string `json:"error,omitempty"`
}

// EndpointHealth is the health of endpoints. In the format simple the caller prints unhealthy
// endpoints to stderr.
func EndpointHealth(list []Health) Answer {
	return Answer{Value: list,
		Simple: func(p *Printer) {
			for _, h := range list {
				if h.Error == "" {
					p.Printf("%s is healthy: successfully committed proposal: took = %s\n",
						h.Endpoint, h.Took)
				}
			}
		},
		Fields: func(p *Printer) {
			for _, h := range list {
				p.Printf("\"Endpoint\" : %q\n\"Health\" : %t\n\"Took\" : %s\n\"Error\" : %s\n\n",
					h.Endpoint, h.Health, h.Took, h.Error)
			}
		},
		Table: func() ([]string, [][]string) {
			var rows [][]string
			for _, h := range list {
				rows = append(rows, []string{h.Endpoint, fmt.Sprint(h.Health), h.Took, h.Error})
			}
			return []string{"endpoint", "health", "took", "error"}, rows
		}}
}

// Status is the status of an endpoint.
type Status struct {
	Endpoint string                       `json:"Endpoint"`
	Status   *etcdserverpb.StatusResponse `json:"Status"`
}

var statusHeading = []string{"endpoint", "ID", "version", "storage version", "db size", "in use",
	"percentage not in use", "quota", "is leader",
	"is learner", "raft term", "raft index", "raft applied index", "errors",
	"downgrade target version", "downgrade enabled"}

// EndpointStatus is the status of endpoints. A table includes the known names of members.
func EndpointStatus(list []Status, names map[uint64]string) Answer {
	var rows [][]string
	for _, e := range list {
		r := e.Status
		rows = append(rows, []string{e.Endpoint, hex64(r.GetHeader().GetMemberId()), r.GetVersion(),
			r.GetStorageVersion(), Size(r.GetDbSize()), Size(r.GetDbSizeInUse()),
			fmt.Sprintf("%d%%", 100-r.GetDbSizeInUse()*100/max(r.GetDbSize(), 1)),
			Size(r.GetDbSizeQuota()),
			fmt.Sprint(r.GetLeader() == r.GetHeader().GetMemberId()), fmt.Sprint(r.GetIsLearner()),
			fmt.Sprint(r.GetRaftTerm()), fmt.Sprint(r.GetRaftIndex()),
			fmt.Sprint(r.GetRaftAppliedIndex()), strings.Join(r.GetErrors(), ", "),
			r.GetDowngradeInfo().GetTargetVersion(), fmt.Sprint(r.GetDowngradeInfo().GetEnabled())})
	}
	return Answer{Value: list, Simple: lines(rows),
		Table: func() ([]string, [][]string) {
			for i, e := range list {
				rows[i][1] += parenthesized(names[e.Status.GetHeader().GetMemberId()])
			}
			return statusHeading, rows
		},
		Fields: func(p *Printer) {
			for _, e := range list {
				r := e.Status
				p.header(r.GetHeader())
				p.Printf("\"Version\" : %q\n\"StorageVersion\" : %q\n", r.GetVersion(),
					r.GetStorageVersion())
				p.Printf("\"DBSize\" : %d\n\"DBSizeInUse\" : %d\n\"DBSizeQuota\" : %d\n",
					r.GetDbSize(), r.GetDbSizeInUse(), r.GetDbSizeQuota())
				p.Printf("\"Leader\" : %d\n\"IsLearner\" : %t\n", r.GetLeader(), r.GetIsLearner())
				p.Printf("\"RaftIndex\" : %d\n\"RaftAppliedIndex\" : %d\n", r.GetRaftIndex(),
					r.GetRaftAppliedIndex())
				p.Printf("\"Errors\" : %v\n\"Endpoint\" : %q\n", r.GetErrors(), e.Endpoint)
				p.Printf("\"DowngradeTargetVersion\" : %q\n\"DowngradeEnabled\" : %t\n\n",
					r.GetDowngradeInfo().GetTargetVersion(), r.GetDowngradeInfo().GetEnabled())
			}
		}}
}

// HashKV is the hash of the data at an endpoint.
type HashKV struct {
	Endpoint string                       `json:"Endpoint"`
	HashKV   *etcdserverpb.HashKVResponse `json:"HashKV"`
}

// EndpointHashKV is the list of the data hashes at endpoints.
func EndpointHashKV(list []HashKV) Answer {
	var rows [][]string
	for _, h := range list {
		rows = append(rows, []string{h.Endpoint, fmt.Sprint(h.HashKV.GetHash()),
			fmt.Sprint(h.HashKV.GetHashRevision())})
	}
	return Answer{Value: list, Simple: lines(rows),
		Table: func() ([]string,
			[][]string) {
			return []string{"endpoint", "hash", "hash_revision"}, rows
		},
		Fields: func(p *Printer) {
			for _, h := range list {
				p.header(h.HashKV.GetHeader())
				p.Printf("\"Endpoint\" : %q\n\"Hash\" : %d\n\"HashRevision\" : %d\n\n", h.Endpoint,
					h.HashKV.GetHash(), h.HashKV.GetHashRevision())
			}
		}}
}

// Size formats a number of bytes as etcd's tools do, in powers of 1000.
func Size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	if n < 10 {
		return fmt.Sprintf("%d B", n)
	}
	e := math.Floor(math.Log(float64(n)) / math.Log(1000))
	v := math.Floor(float64(n)/math.Pow(1000, e)*10+0.5) / 10
	if v < 10 {
		return fmt.Sprintf("%.1f %s", v, units[int(e)])
	}
	return fmt.Sprintf("%.0f %s", v, units[int(e)])
}
