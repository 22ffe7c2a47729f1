package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"vigil/internal/kv"
)

// TestScenarios runs testdata/*.txt. Each file is one hub. After each command the hub finishes
// its work before the next. The commands:
//
//	hub [stream-bytes=N] [ring-bytes=N] ...            a new hub
//	txn                                               each line "put K V" or "del K"; V may be N*c
//	hold, release                                     keep what is committed from being published
//	withhold | release holds=N                        keep events from watchers, as Withhold and Release do
//	compact REV | reset REV | fail on|off
//	create stream=S key=K [end=E] [start=R] [id=N] [prev] [noput] [nodelete] [notify] [fragment] [withheld=N]
//	cancel stream=S id=N | progress stream=S | refuse stream=S reason=R | close stream=S
//	next stream=S [once]                              what the client reads now
//	advance D                                         let time pass
//	stats
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if _, err := os.Stat(file); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				sc := &scenario{src: newMemSource(), streams: map[string]*Stream{}}
				defer func() { sc.hub.Close() }()
				datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
					out := sc.run(t, d)
					synctest.Wait()
					return out
				})
			})
		})
	}
}

type scenario struct {
	src     *memSource
	hub     *Hub
	streams map[string]*Stream
	held    bool
	kept    []kv.Event
	keptRev int64
}

func (sc *scenario) run(t *testing.T, d *datadriven.TestData) string {
	name := func() string { var s string; d.ScanArgs(t, "stream", &s); return s }
	stream := func() *Stream {
		s := name()
		if sc.streams[s] == nil {
			sc.streams[s] = sc.hub.NewStream(StreamInfo{Client: "client-" + s, User: "user-" + s})
		}
		return sc.streams[s]
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(d.CmdArgs[i].Key, 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return n
	}
	switch d.Cmd {
	case "hub":
		var o Options
		for key, field := range map[string]*int64{
			"stream-bytes": &o.StreamBytes, "ring-bytes": &o.RingBytes, "member-bytes": &o.MemberBytes,
			"fragment-bytes": &o.FragmentBytes, "response-bytes": &o.ResponseBytes, "next-bytes": &o.NextBytes,
		} {
			d.MaybeScanArgs(t, key, field)
		}
		d.MaybeScanArgs(t, "catch-up-bytes", &o.CatchUpBytes)
		o.CatchUpWorkers = 1
		sc.hub = New(sc.src, o)
	case "txn":
		var ops []op
		for line := range strings.Lines(d.Input) {
			f := strings.Fields(line)
			o := op{key: f[1], del: f[0] == "del"}
			if !o.del {
				o.value = f[2]
				if n, c, ok := strings.Cut(f[2], "*"); ok {
					times, err := strconv.Atoi(n)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					o.value = strings.Repeat(c, times)
				}
			}
			ops = append(ops, o)
		}
		rev, events := sc.src.commit(ops...)
		if sc.held {
			sc.kept, sc.keptRev = append(sc.kept, events...), rev
		} else {
			sc.hub.Publish(rev, events)
		}
		return fmt.Sprintf("revision %d", rev)
	case "hold":
		sc.held = true
	case "withhold":
		sc.hub.Withhold()
		return fmt.Sprint("withheld ", sc.hub.Withheld())
	case "release":
		var holds int64
		if d.MaybeScanArgs(t, "holds", &holds) {
			sc.hub.Release(holds)
			break
		}
		sc.hub.Publish(sc.keptRev, sc.kept)
		sc.held, sc.kept = false, nil
	case "compact":
		sc.src.compact(number(0))
	case "reset":
		sc.hub.Reset(number(0))
		sc.held, sc.kept = false, nil
	case "fail":
		sc.src.mu.Lock()
		sc.src.mu.fail = nil
		if d.HasArg("on") {
			sc.src.mu.fail = errors.New("disk on fire")
		}
		sc.src.mu.Unlock()
	case "create":
		var r CreateRequest
		var key, end string
		d.MaybeScanArgs(t, "key", &key)
		d.MaybeScanArgs(t, "end", &end)
		if end == "zero" {
			end = "\x00"
		}
		r.Key, r.End = []byte(key), []byte(end)
		d.MaybeScanArgs(t, "start", &r.StartRev)
		d.MaybeScanArgs(t, "id", &r.ID)
		r.NoPut, r.NoDelete, r.PrevKV = d.HasArg("noput"), d.HasArg("nodelete"), d.HasArg("prev")
		r.ProgressNotify, r.Fragment = d.HasArg("notify"), d.HasArg("fragment")
		d.MaybeScanArgs(t, "withheld", &r.Withheld)
		if !stream().Create(r) {
			return "rights have changed"
		}
	case "cancel":
		var id int64
		d.ScanArgs(t, "id", &id)
		stream().Cancel(id)
	case "progress":
		stream().Progress()
	case "refuse":
		var reason string
		d.ScanArgs(t, "reason", &reason)
		stream().Refuse(reason)
	case "revoke":
		var key, reason string
		d.ScanArgs(t, "key", &key)
		d.ScanArgs(t, "reason", &reason)
		stream().Revoke(func(k, _ []byte) string {
			if string(k) == key {
				return reason
			}
			return ""
		})
	case "close":
		stream().Close()
		delete(sc.streams, name())
	case "next":
		return sc.next(t, stream(), d.HasArg("once"))
	case "advance":
		dur, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		<-time.After(dur)
	case "stats":
		return sc.stats()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return ""
}

// next returns what the client reads until nothing is ready, or of one call.
func (sc *scenario) next(t *testing.T, s *Stream, once bool) string {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var b strings.Builder
	for idle := 0; idle < 2; {
		rs, err := s.Next(ctx, nil)
		if errors.Is(err, ErrClosed) {
			b.WriteString("closed\n")
		}
		for _, r := range rs {
			b.WriteString(show(t, r) + "\n")
		}
		if once {
			break
		}
		synctest.Wait() // what was read may have made room for more
		if idle++; len(rs) > 0 {
			idle = 0
		}
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}

func (sc *scenario) stats() string {
	st := sc.hub.Stats()
	var b strings.Builder
	fmt.Fprintf(&b, "revision=%d matched=%d\n", st.Revision, st.Matched)
	for _, s := range st.Streams {
		queued := "empty"
		if s.QueuedBytes > 0 {
			queued = "holds bytes"
		}
		fmt.Fprintf(&b, "stream %d client=%s user=%s responses=%d %s\n", s.ID, s.Client, s.User, s.QueuedResponses, queued)
		for _, w := range s.Watchers {
			fmt.Fprintf(&b, "  watch %d [%q, %q) start=%d %s next=%d lag=%d queued=%d events=%d bytes=%d", w.ID, w.Key, w.End, w.StartRev, w.State, w.Next, w.Lag, w.QueuedBytes, w.Events, w.Bytes)
			for _, f := range []struct {
				on   bool
				name string
			}{{w.NoPut, "noput"}, {w.NoDelete, "nodelete"}, {w.PrevKV, "prev"}, {w.ProgressNotify, "notify"}, {w.Fragment, "fragment"}} {
				if f.on {
					b.WriteString(" " + f.name)
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
