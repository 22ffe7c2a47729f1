package diff

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// TestHashScenario runs the scenario of hashes that the subject's own tests run, so that what it
// expects is what a stock etcd answers; -rewrite records that.
func TestHashScenario(t *testing.T) {
	p := NewPair(t)
	datadriven.RunTest(t, "../../internal/store/mvcc/testdata/hash.txt",
		func(t *testing.T, d *datadriven.TestData) string {
			text := d.Cmd
			for _, a := range d.CmdArgs {
				text += " " + a.String()
			}
			lines := strings.Split(text+"\n"+d.Input, "\n")
			if d.Cmd == "hash" {
				var out strings.Builder
				for _, line := range lines {
					out.WriteString(hashLine(t, p, line))
				}
				return out.String()
			}
			for len(lines) > 0 {
				var req proto.Message
				if req, lines = scenarioRequest(t, p, lines); req != nil {
					if o := p.Do(req); o.Resp == nil {
						t.Fatalf("%s: %v: %v", d.Pos, req, o.Status)
					}
				}
			}
			return d.Expected
		})
	p.Finish(t, &tally)
}

// hashLine asks for one hash and words the answer as the scenario does.
func hashLine(t *testing.T, p *Pair, line string) string {
	word, arg, _ := strings.Cut(line, " ")
	if word == "" {
		return ""
	}
	rev, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	o := p.Do(&pb.HashKVRequest{Revision: rev})
	if o.Resp == nil {
		return fmt.Sprintf("hash %d: %s\n", rev,
			strings.TrimPrefix(o.Status.Message(), "etcdserver: mvcc: "))
	}
	res := o.Resp.(*pb.HashKVResponse)
	return fmt.Sprintf("hash %d: %d of %d compacted %d, revision %d\n", rev, res.Hash,
		res.HashRevision,
		res.CompactRevision, res.Header.Revision)
}

// scenarioRequest makes the request of the first of some lines and returns those that follow it.
func scenarioRequest(t *testing.T, p *Pair, lines []string) (proto.Message, []string) {
	words := strings.Fields(strings.ReplaceAll(lines[0], `\0`, "\x00"))
	lines = lines[1:]
	if len(words) == 0 {
		return nil, lines
	}
	switch words = append(words, "", ""); words[0] {
	case "put":
		return put(words[1], words[2]), lines
	case "del":
		return del(words[1], words[2]), lines
	case "compact":
		rev, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return &pb.CompactionRequest{Revision: rev, Physical: true}, lines
	case "txn":
		r := &pb.TxnRequest{}
		for lines[0] != "end" {
			var req proto.Message
			if req, lines = scenarioRequest(t, p, lines); req != nil {
				r.Success = append(r.Success, wrap(req))
			}
		}
		return r, lines[1:]
	case "reopen":
		p.Restart()
	case "then", "commit":
	default:
		t.Fatalf("unknown line %q", words)
	}
	return nil, lines
}

// TestHashGenerated compares hashes at many revisions over a random history with compactions,
// VIGIL_DIFF_CALLS/5 changes long. Twice in between both servers are killed.
//
// Transactions that delete from a key on may put a key that they have deleted; a stock etcd that
// compacts at just that revision loses the put, so there are none here.
func TestHashGenerated(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	g := narrow(seed(t), 3, p.Rev)
	g.compacted = -1
	var compactions []int64
	changes := int(setting(t, "VIGIL_DIFF_CALLS", 10000) / 5)
	for i := range changes {
		var req proto.Message
		switch n := g.rng.IntN(20); {
		case i == changes/3 || i == changes*2/3:
			p.Restart()
			continue
		case n < 8:
			req = g.put()
		case n < 12:
			req = g.del()
		case n < 19:
			txn := g.txn(2, nil)
			if deletesOn(txn) {
				continue
			}
			req = txn
		default:
			// The stock server computes the hash of a compaction with it.
			req = &pb.CompactionRequest{Revision: max(g.rev-g.rng.Int64N(30), 0), Physical: true}
		}
		o := p.Do(req)
		g.saw(req, o, p.Rev)
		if c, ok := req.(*pb.CompactionRequest); ok && o.Resp != nil {
			g.compacted = c.Revision
			compactions = append(compactions, c.Revision)
		}
		if i%4 > 0 && i < changes-1 {
			continue
		}
		revs := []int64{0, g.rev, g.rev + 1, g.compacted - 1, g.compacted,
			g.compacted + 1, g.revision()}
		revs = append(revs, compactions[max(len(compactions)-12, 0):]...)
		for _, rev := range revs {
			p.Do(&pb.HashKVRequest{Revision: rev})
		}
	}
	p.Finish(t, &tally)
}

// deletesOn reports whether a transaction deletes from some key on.
func deletesOn(r *pb.TxnRequest) bool {
	for _, op := range append(append([]*pb.RequestOp(nil), r.Success...), r.Failure...) {
		if d := op.GetRequestDeleteRange(); d != nil && string(d.RangeEnd) == "\x00" {
			return true
		}
		if txn := op.GetRequestTxn(); txn != nil && deletesOn(txn) {
			return true
		}
	}
	return false
}
