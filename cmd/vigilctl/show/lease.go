package show

import "go.etcd.io/etcd/api/v3/etcdserverpb"

// As in etcd's command line, the JSON form of a lease has the header's fields next to its own. The
// protobuf form has only the header.

type leaseJSON struct {
	*etcdserverpb.ResponseHeader
	ID  int64
	TTL int64
}

// Grant prints the answer to granting a lease.
func Grant(r *etcdserverpb.LeaseGrantResponse) Answer {
	type grantJSON struct {
		leaseJSON
		Error string
	}
	return Answer{Value: &grantJSON{leaseJSON{r.GetHeader(), r.GetID(), r.GetTTL()}, r.GetError()},
		Message: r.GetHeader(),
		Simple: func(p *Printer) {
			p.Printf("lease %016x granted with TTL(%ds)\n",
				r.GetID(), r.GetTTL())
		},
		Fields: leaseFields(r.GetHeader(), r.GetID(), r.GetTTL())}
}

// KeepAlive prints the answer to renewing a lease.
func KeepAlive(r *etcdserverpb.LeaseKeepAliveResponse) Answer {
	return Answer{Value: &leaseJSON{r.GetHeader(), r.GetID(), r.GetTTL()}, Message: r.GetHeader(),
		Simple: func(p *Printer) {
			p.Printf("lease %016x keepalived with TTL(%d)\n",
				r.GetID(), r.GetTTL())
		},
		Fields: leaseFields(r.GetHeader(), r.GetID(), r.GetTTL())}
}

func leaseFields(h *etcdserverpb.ResponseHeader, id, ttl int64) func(*Printer) {
	return func(p *Printer) {
		p.header(h)
		p.lease("ID", id)
		p.Printf("\"TTL\" : %d\n", ttl)
	}
}

// Revoke prints the answer to revoking a lease.
func Revoke(id int64, r *etcdserverpb.LeaseRevokeResponse) Answer {
	return Answer{
		Value: &struct {
			Header *etcdserverpb.ResponseHeader `json:"header,omitempty"`
		}{r.GetHeader()},
		Simple: func(p *Printer) { p.Printf("lease %016x revoked\n", id) },
		Fields: func(p *Printer) { p.header(r.GetHeader()) }}
}

// TimeToLive prints the state of a lease, with its keys if they were requested.
func TimeToLive(r *etcdserverpb.LeaseTimeToLiveResponse, keys bool) Answer {
	return Answer{
		Value: &struct {
			*etcdserverpb.ResponseHeader
			ID         int64    `json:"id"`
			TTL        int64    `json:"ttl"`
			GrantedTTL int64    `json:"granted-ttl"`
			Keys       [][]byte `json:"keys"`
		}{r.GetHeader(), r.GetID(), r.GetTTL(), r.GetGrantedTTL(), r.GetKeys()},
		Message: r.GetHeader(),
		Simple: func(p *Printer) {
			if r.GetGrantedTTL() == 0 && r.GetTTL() == -1 {
				p.Printf("lease %016x already expired\n", r.GetID())
				return
			}
			p.Printf("lease %016x granted with TTL(%ds), remaining(%ds)", r.GetID(),
				r.GetGrantedTTL(), r.GetTTL())
			if keys {
				names := make([]string, len(r.GetKeys()))
				for i, k := range r.GetKeys() {
					names[i] = string(k)
				}
				p.Printf(", attached keys(%v)", names)
			}
			p.Printf("\n")
		},
		Fields: func(p *Printer) {
			leaseFields(r.GetHeader(), r.GetID(), r.GetTTL())(p)
			p.Printf("\"GrantedTTL\" : %d\n", r.GetGrantedTTL())
			for _, k := range r.GetKeys() {
				p.Printf("\"Key\" : %q\n", k)
			}
		}}
}

// Leases prints the list of all leases.
func Leases(r *etcdserverpb.LeaseLeasesResponse) Answer {
	type status struct {
		ID int64 `json:"id"`
	}
	list := make([]status, 0, len(r.GetLeases()))
	for _, l := range r.GetLeases() {
		list = append(list, status{l.GetID()})
	}
	return Answer{
		Value: &struct {
			*etcdserverpb.ResponseHeader
			Leases []status `json:"leases"`
		}{r.GetHeader(), list},
		Message: r.GetHeader(),
		Simple: func(p *Printer) {
			p.Printf("found %d leases\n", len(list))
			for _, l := range list {
				p.Printf("%016x\n", l.ID)
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			for _, l := range list {
				p.lease("ID", l.ID)
			}
		}}
}
