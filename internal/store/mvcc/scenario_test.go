package mvcc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"vigil/internal/kv"
)

// TestScenarios runs the files in testdata. Each input line is a request:
//
//	put KEY [VALUE] [lease=N] [prev] [ignore_value] [ignore_lease]
//	del KEY [END] [prev]
//	range KEY [END] [rev=N] [limit=N] [sort=key|version|create|mod|value] [asc|desc] [keys] [count]
//	      [minmod=N] [maxmod=N] [mincreate=N] [maxcreate=N]
//	compact N
//	events FROM TO [bytes=N]
//	hash REVISION
//	commit, trim, reopen, stats
//
// and a transaction is a txn line, lines "if TARGET KEY [END] OP OPERAND", a line then, requests, a
// line else, requests, and a line end; transactions nest. END is \0 for all keys from KEY on. A
// range outside of a transaction reads what is committed.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		sc := &scenario{t: t, b: newBed(t, Options{}, 4096)}
		defer func() { sc.b.close(t) }()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			sc.lines = strings.Split(d.Cmd+argsOf(d)+"\n"+d.Input, "\n")
			var out strings.Builder
			for len(sc.lines) > 0 {
				if line := sc.next(); len(line) > 0 {
					sc.run(&out, line)
				}
			}
			return out.String()
		})
	})
}

// argsOf puts the arguments of a command back into words.
func argsOf(d *datadriven.TestData) string {
	s := ""
	for _, a := range d.CmdArgs {
		s += " " + a.String()
	}
	return s
}

type scenario struct {
	t     *testing.T
	b     *bed
	lines []string
}

// Exists makes it a LeaseChecker: the leases are 1 and 2.
func (sc *scenario) Exists(id int64) bool { return id == 1 || id == 2 }

// next takes the words of the next line.
func (sc *scenario) next() []string {
	line := strings.Fields(sc.lines[0])
	sc.lines = sc.lines[1:]
	return line
}

func (sc *scenario) num(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		sc.t.Fatal(err)
	}
	return n
}

func word(s string) []byte {
	return []byte(strings.NewReplacer(`\0`, "\x00", `""`, "").Replace(s))
}

// options calls set for each word that is one, as name and value, and returns the others.
func options(words []string, set func(name, value string) bool) (plain []string) {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		if !set(name, value) {
			plain = append(plain, w)
		}
	}
	return plain
}

func (sc *scenario) put(words []string) *kv.PutRequest {
	p := &kv.PutRequest{}
	words = options(words, func(name, value string) bool {
		switch name {
		case "lease":
			p.Lease = sc.num(value)
		case "prev":
			p.PrevKV = true
		case "ignore_value":
			p.IgnoreValue = true
		case "ignore_lease":
			p.IgnoreLease = true
		default:
			return false
		}
		return true
	})
	p.Key = word(words[0])
	if len(words) > 1 {
		p.Value = word(words[1])
	}
	return p
}

func (sc *scenario) del(words []string) *kv.DeleteRangeRequest {
	d := &kv.DeleteRangeRequest{}
	words = options(words, func(name, _ string) bool {
		d.PrevKV = d.PrevKV || name == "prev"
		return name == "prev"
	})
	d.Key = word(words[0])
	if len(words) > 1 {
		d.End = word(words[1])
	}
	return d
}

func (sc *scenario) rang(words []string) *kv.RangeRequest {
	r := &kv.RangeRequest{}
	nums := map[string]*int64{
		"rev": &r.Revision, "limit": &r.Limit, "minmod": &r.MinModRevision, "maxmod": &r.MaxModRevision,
		"mincreate": &r.MinCreateRevision, "maxcreate": &r.MaxCreateRevision,
	}
	words = options(words, func(name, value string) bool {
		switch name {
		case "keys":
			r.KeysOnly = true
		case "count":
			r.CountOnly = true
		case "asc":
			r.Order = kv.SortAscend
		case "desc":
			r.Order = kv.SortDescend
		case "sort":
			r.Sort = map[string]kv.SortTarget{
				"key": kv.SortByKey, "version": kv.SortByVersion, "create": kv.SortByCreate,
				"mod": kv.SortByMod, "value": kv.SortByValue,
			}[value]
		default:
			p, ok := nums[name]
			if ok {
				*p = sc.num(value)
			}
			return ok
		}
		return true
	})
	r.Key = word(words[0])
	if len(words) > 1 {
		r.End = word(words[1])
	}
	return r
}

// txn reads the lines after a txn line up to its end.
func (sc *scenario) txn() *kv.TxnRequest {
	r := &kv.TxnRequest{}
	ops := &r.Success
	for {
		words := sc.next()
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "if":
			n := len(words)
			c := kv.Compare{
				Target: map[string]kv.CompareTarget{
					"version": kv.CompareVersion, "create": kv.CompareCreate, "mod": kv.CompareMod,
					"value": kv.CompareValue, "lease": kv.CompareLease,
				}[words[1]],
				Result: map[string]kv.CompareResult{"=": kv.Equal, ">": kv.Greater, "<": kv.Less, "!=": kv.NotEqual}[words[n-2]],
				Key:    word(words[2]),
			}
			if n == 6 {
				c.End = word(words[3])
			}
			if c.Target == kv.CompareValue {
				c.Value = word(words[n-1])
			} else {
				c.Number = sc.num(words[n-1])
			}
			r.Compare = append(r.Compare, c)
		case "then":
			ops = &r.Success
		case "else":
			ops = &r.Failure
		case "end":
			return r
		case "put":
			*ops = append(*ops, kv.Op{Put: sc.put(words[1:])})
		case "del":
			*ops = append(*ops, kv.Op{Delete: sc.del(words[1:])})
		case "range":
			*ops = append(*ops, kv.Op{Range: sc.rang(words[1:])})
		case "txn":
			*ops = append(*ops, kv.Op{Txn: sc.txn()})
		default:
			sc.t.Fatalf("unknown line %q in a txn", words)
		}
	}
}

func (sc *scenario) run(out *strings.Builder, words []string) {
	w, ctx := sc.b.Writer(), context.Background()
	fail := func(err error) bool {
		if err == nil {
			return false
		}
		fmt.Fprintf(out, "%s: %v", words[0], err)
		var ce *kv.CompactedError
		if errors.As(err, &ce) {
			fmt.Fprintf(out, " (%d)", ce.CompactRevision)
		}
		out.WriteString("\n")
		return true
	}
	switch words[0] {
	case "put":
		if res, err := w.Put(sc.put(words[1:]), sc); !fail(err) {
			sc.show(out, "", kv.OpResult{Put: &res})
		}
	case "del":
		if res, err := w.DeleteRange(sc.del(words[1:])); !fail(err) {
			sc.show(out, "", kv.OpResult{Delete: &res})
		}
	case "range":
		if res, err := sc.b.Range(ctx, sc.rang(words[1:])); !fail(err) {
			sc.show(out, "", kv.OpResult{Range: res})
		}
	case "txn", "read":
		r := sc.txn()
		var res *kv.TxnResult
		var err error
		if words[0] == "read" {
			res, err = sc.b.ReadTxn(ctx, r)
		} else {
			res, err = w.Txn(r, sc)
		}
		if !fail(err) {
			sc.show(out, "", kv.OpResult{Txn: res})
		}
	case "compact":
		if res, err := w.Compact(sc.num(words[1])); !fail(err) {
			fmt.Fprintf(out, "compact rev=%d\n", res.Revision)
		}
	case "commit":
		p := sc.b.commit(sc.t)
		fmt.Fprintf(out, "commit rev=%d", p.Revision)
		if p.Compacted > 0 {
			fmt.Fprintf(out, " compacted=%d", p.Compacted)
		}
		out.WriteString("\n")
		sc.events(out, p.Events)
		for _, l := range p.Leases {
			fmt.Fprintf(out, "  lease of %s: %d -> %d\n", l.Key, l.From, l.To)
		}
	case "events":
		limit := 1 << 20
		words = options(words, func(name, value string) bool {
			if name == "bytes" {
				limit = int(sc.num(value))
			}
			return name == "bytes"
		})
		if evs, next, err := sc.b.Events(sc.num(words[1]), sc.num(words[2]), limit); !fail(err) {
			fmt.Fprintf(out, "events next=%d\n", next)
			sc.events(out, evs)
		}
	case "hash":
		if res, err := sc.b.HashKV(ctx, sc.num(words[1])); err != nil {
			fmt.Fprintf(out, "hash %s: %v\n", words[1], err)
		} else {
			fmt.Fprintf(out, "hash %s: %d of %d compacted %d, revision %d\n", words[1], res.Hash, res.HashRevision,
				res.CompactRevision, res.Revision)
		}
	case "trim":
		if err := sc.b.WaitTrimmed(ctx, sc.b.CompactRevision()); err != nil {
			sc.t.Fatal(err)
		}
	case "reopen":
		sc.b.reopen(sc.t)
		fmt.Fprintf(out, "reopened rev=%d compact=%d\n", sc.b.Revision(), sc.b.CompactRevision())
	case "stats":
		st := sc.b.Stats()
		fmt.Fprintf(out, "stats keys=%d known=%d\n", st.Keys, st.Known)
	default:
		sc.t.Fatalf("unknown line %q", words)
	}
}

func (sc *scenario) events(out *strings.Builder, evs []kv.Event) {
	for _, e := range evs {
		kind := "put"
		if e.Delete {
			kind = "delete"
		} else if e.Create {
			kind = "create"
		}
		fmt.Fprintf(out, "  %d.%d %s %s\n", e.Rev.Main, e.Rev.Sub, kind, sc.kv(e.KV))
	}
}

func (sc *scenario) kv(b []byte) string {
	k, err := plainKV(b)
	if err != nil {
		sc.t.Fatal(err)
	}
	s := fmt.Sprintf("%s=%s create=%d mod=%d version=%d", k.Key, k.Value, k.Create, k.Mod, k.Version)
	if k.Lease != 0 {
		s += fmt.Sprintf(" lease=%d", k.Lease)
	}
	return strings.ReplaceAll(s, "\x00", `\0`)
}

func (sc *scenario) show(out *strings.Builder, indent string, r kv.OpResult) {
	records := func(rs kv.Records) {
		for i := range rs.Len() {
			fmt.Fprintf(out, "%s  %s\n", indent, sc.kv(rs.At(i)))
		}
	}
	switch {
	case r.Range != nil:
		fmt.Fprintf(out, "%srange rev=%d count=%d more=%v\n", indent, r.Range.Revision, r.Range.Count, r.Range.More)
		records(r.Range.KVs)
	case r.Put != nil:
		fmt.Fprintf(out, "%sput rev=%d\n", indent, r.Put.Revision)
		if r.Put.PrevKV != nil {
			fmt.Fprintf(out, "%s  %s\n", indent, sc.kv(r.Put.PrevKV))
		}
	case r.Delete != nil:
		fmt.Fprintf(out, "%sdel rev=%d deleted=%d\n", indent, r.Delete.Revision, r.Delete.Deleted)
		records(r.Delete.PrevKVs)
	case r.Txn != nil:
		fmt.Fprintf(out, "%stxn rev=%d succeeded=%v\n", indent, r.Txn.Revision, r.Txn.Succeeded)
		for _, one := range r.Txn.Responses {
			sc.show(out, indent+"  ", one)
		}
	default:
		fmt.Fprintf(out, "%snothing\n", indent)
	}
}
