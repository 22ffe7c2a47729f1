package show

import "go.etcd.io/etcd/api/v3/etcdserverpb"

// Range is the answer of a get. valueOnly leaves keys out of the lines.
func Range(r *etcdserverpb.RangeResponse, valueOnly bool) Answer {
	return Answer{Value: r,
		Simple: func(p *Printer) {
			for _, kv := range r.GetKvs() {
				p.pair(kv, valueOnly)
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			for _, kv := range r.GetKvs() {
				p.fields("", kv)
			}
			p.Printf("\"More\" : %t\n", r.GetMore())
			p.Printf("\"Count\" : %d\n", r.GetCount())
		}}
}

// Put is the answer of a put.
func Put(r *etcdserverpb.PutResponse) Answer {
	return Answer{Value: r,
		Simple: func(p *Printer) {
			p.Printf("OK\n")
			if r.GetPrevKv() != nil {
				p.pair(r.GetPrevKv(), false)
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			if r.GetPrevKv() != nil {
				p.fields("Prev", r.GetPrevKv())
			}
		}}
}

// Delete is the answer of a deletion.
func Delete(r *etcdserverpb.DeleteRangeResponse) Answer {
	return Answer{Value: r,
		Simple: func(p *Printer) {
			p.Printf("%d\n", r.GetDeleted())
			for _, kv := range r.GetPrevKvs() {
				p.pair(kv, false)
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			p.Printf("\"Deleted\" : %d\n", r.GetDeleted())
			for _, kv := range r.GetPrevKvs() {
				p.fields("Prev", kv)
			}
		}}
}
