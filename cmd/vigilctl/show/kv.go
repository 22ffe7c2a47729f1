package show

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Range is the answer of a get. With valueOnly the format simple omits keys.
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

// Txn is the answer of a transaction.
func Txn(r *etcdserverpb.TxnResponse) Answer {
	return Answer{Value: txn(r), Message: r,
		Simple: func(p *Printer) {
			outcome := "FAILURE"
			if r.GetSucceeded() {
				outcome = "SUCCESS"
			}
			p.Printf("%s\n", outcome)
			for _, a := range answers(r) {
				p.Printf("\n")
				a.Simple(p)
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			p.Printf("\"Succeeded\" : %t\n", r.GetSucceeded())
			for _, a := range answers(r) {
				a.Fields(p)
			}
		}}
}

// answers returns the answers to the requests of a transaction.
func answers(r *etcdserverpb.TxnResponse) []Answer {
	var list []Answer
	for _, op := range r.GetResponses() {
		switch v := op.GetResponse().(type) {
		case *etcdserverpb.ResponseOp_ResponseRange:
			list = append(list, Range(v.ResponseRange, false))
		case *etcdserverpb.ResponseOp_ResponsePut:
			list = append(list, Put(v.ResponsePut))
		case *etcdserverpb.ResponseOp_ResponseDeleteRange:
			list = append(list, Delete(v.ResponseDeleteRange))
		case *etcdserverpb.ResponseOp_ResponseTxn:
			list = append(list, Txn(v.ResponseTxn))
		}
	}
	return list
}

// txnJSON is the JSON form of a transaction, with the field names of etcd's command line.
type txnJSON struct {
	Header    *etcdserverpb.ResponseHeader `json:"header,omitempty"`
	Succeeded bool                         `json:"succeeded,omitempty"`
	Responses []opJSON                     `json:"responses,omitempty"`
}

type opJSON struct {
	Response struct {
		Range  *etcdserverpb.RangeResponse       `json:"response_range,omitempty"`
		Put    *etcdserverpb.PutResponse         `json:"response_put,omitempty"`
		Delete *etcdserverpb.DeleteRangeResponse `json:"response_delete_range,omitempty"`
		Txn    *txnJSON                          `json:"response_txn,omitempty"`
	} `json:"Response"`
}

func txn(r *etcdserverpb.TxnResponse) *txnJSON {
	if r == nil {
		return nil
	}
	t := &txnJSON{Header: r.GetHeader(), Succeeded: r.GetSucceeded()}
	for _, op := range r.GetResponses() {
		var j opJSON
		j.Response.Range, j.Response.Put = op.GetResponseRange(), op.GetResponsePut()
		j.Response.Delete, j.Response.Txn = op.GetResponseDeleteRange(), txn(op.GetResponseTxn())
		t.Responses = append(t.Responses, j)
	}
	return t
}

// Watch is an answer of a watch.
func Watch(r *etcdserverpb.WatchResponse) Answer {
	return Answer{
		Value: &struct {
			Header          *etcdserverpb.ResponseHeader
			Events          []*mvccpb.Event
			CompactRevision int64
			Canceled        bool
			Created         bool
			CancelReason    string
		}{r.GetHeader(), r.GetEvents(), r.GetCompactRevision(), r.GetCanceled(), r.GetCreated(),
			r.GetCancelReason()},
		Message: &etcdserverpb.WatchResponse{Header: r.GetHeader(), Events: r.GetEvents(),
			CompactRevision: r.GetCompactRevision(), Canceled: r.GetCanceled(),
			Created: r.GetCreated()},
		Simple: func(p *Printer) {
			for _, ev := range r.GetEvents() {
				p.Printf("%s\n", ev.GetType())
				if ev.GetPrevKv() != nil {
					p.pair(ev.GetPrevKv(), false)
				}
				p.pair(ev.GetKv(), false)
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			for _, ev := range r.GetEvents() {
				p.Printf("\"Type\" : %s\n", ev.GetType())
				if ev.GetPrevKv() != nil {
					p.fields("Prev", ev.GetPrevKv())
				}
				p.fields("", ev.GetKv())
			}
		}}
}
