package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
	"vigil/tools/bench/target"
)

func memberScenarios() []Scenario {
	return []Scenario{
		{Name: "members-put",
			About: "puts at all three members, 99 connections, 990 in flight; CPU and memory are the sum of the members", Run: membersPut},
		{Name: "members-get",
			About: "linearizable gets at all three members, 99 connections, 990 in flight; CPU and memory are the sum of the members", Run: membersGet},
		{Name: "follower-away",
			About: "three members under 500 puts/s; one comes back that missed 1 million x scale revisions of 200,000 x scale keys", Run: followerAway},
		{Name: "follower-replaced",
			About: "three members with 1 million x scale revisions of 200,000 x scale keys under 500 puts/s; one is removed, and added with an empty disk", Run: followerReplaced},
	}
}

// dialAll opens n connections, in turns to each member.
func (e *Env) dialAll(ctx context.Context, n int) (all load.Conns, err error) {
	servers := append([]*target.Server{e.server}, e.others...)
	for i := range n {
		cs, err := load.Dial(ctx, servers[i%len(servers)].Addr, 1, grpcconn.Options{})
		if err != nil {
			return nil, err
		}
		e.conns = append(e.conns, cs)
		all = append(all, cs...)
	}
	return all, nil
}

func membersPut(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.startGroup(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dialAll(ctx, manyConns/3*3)
	if err != nil {
		return nil, err
	}
	from, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	r, f, err := e.measureClosedOn(ctx, e.meterAll(), "", cs, perConn, "put",
		func(slot int) load.Op {
			return newPutter(slot, spread, e.Params.ValueSize, fill)
		})
	if err != nil {
		return nil, err
	}
	return f, e.checkWrites(ctx, cs[0], from, r.All)
}

func membersGet(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.startGroup(ctx); err != nil {
		return nil, err
	}
	fill := newFiller(e.Params.ValueSize)
	if err := e.loadKeys(ctx, spread, e.Params.ValueSize, fill); err != nil {
		return nil, err
	}
	cs, err := e.dialAll(ctx, manyConns/3*3)
	if err != nil {
		return nil, err
	}
	_, f, err := e.measureClosedOn(ctx, e.meterAll(), "", cs, perConn, "get",
		func(slot int) load.Op {
			return &getter{keys: spread, size: e.Params.ValueSize, fill: fill,
				rng: rand.New(rand.NewPCG(uint64(slot), 4))}
		})
	return f, err
}

// startGroup starts three members. e.server is the leader.
func (e *Env) startGroup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	seats, cluster, err := target.Seats(3)
	if err != nil {
		return err
	}
	for _, seat := range seats {
		s, err := e.startMember(seat, cluster, false)
		if err != nil {
			return err
		}
		e.others = append(e.others, s)
	}
	for _, s := range e.others {
		if _, err := s.Ready(ctx); err != nil {
			return err
		}
	}
	for i, s := range e.others {
		st, err := e.status(ctx, s)
		if err != nil {
			return err
		}
		if st.Leader == st.Header.MemberID {
			e.server, e.others = s, slices.Delete(e.others, i, i+1)
			return nil
		}
	}
	return errors.New("no member leads")
}

func (e *Env) startMember(seat *target.Seat, cluster string,
	existing bool) (*target.Server, error) {
	dir := filepath.Join(e.Dir, seat.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return e.Launcher.Start(e.Build,
		target.Config{Dir: dir, Profile: e.ProfileTo != "", Args: e.Args, Seat: seat,
			Cluster: cluster, Existing: existing})
}

// callOnce calls one member.
func (e *Env) callOnce(ctx context.Context, s *target.Server, method string,
	msg []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cs, err := load.Dial(ctx, s.Addr, 1, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	defer cs.Close()
	return cs[0].Call(ctx, method, msg)
}

func (e *Env) status(ctx context.Context, s *target.Server) (st api.StatusAnswer, err error) {
	b, err := e.callOnce(ctx, s, api.Status, nil)
	if err != nil {
		return st, err
	}
	return st, st.Read(b)
}

// awaitInSync waits until a member has applied what the leader had just before.
func (e *Env) awaitInSync(ctx context.Context, p *load.Pacer, s *target.Server) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var last error
	for {
		lead, err := e.status(ctx, e.server)
		if err != nil {
			return err
		}
		// One that starts, or is about to take a snapshot, may not answer.
		st, err := e.status(ctx, s)
		if err == nil && st.Header.Revision >= lead.Header.Revision {
			return nil
		}
		last = err
		select {
		case <-s.Exited():
			return fmt.Errorf("%s ended:\n%s", s.Build.Name, s.LogTail())
		default:
		}
		if err := p.Wait(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the member is at revision %d, the leader was at %d: %w, %w",
				st.Header.Revision, lead.Header.Revision, err, last)
		}
	}
}

// sentTo returns how many bytes the leader has sent to a member.
func (e *Env) sentTo(ctx context.Context, id uint64) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+e.server.Addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	label := fmt.Sprintf(`{To="%x"}`, id)
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name == "etcd_network_peer_sent_bytes_total"+label {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, lines.Err() // nothing yet
}

// measureReturn measures the cost for clients while a member comes back. started starts the member
// and returns it with its id. had is the number of bytes that the leader had sent to it before.
// Puts go to the leader and to the member that stayed.
func (e *Env) measureReturn(ctx context.Context, keys int, fill filler, had float64,
	started func() (*target.Server, uint64, error)) ([]Figure, error) {
	const rate = 500
	var cs load.Conns
	for _, s := range append([]*target.Server{e.server}, e.others...) {
		more, err := load.Dial(ctx, s.Addr, 10, grpcconn.Options{})
		if err != nil {
			return nil, err
		}
		e.conns = append(e.conns, more)
		cs = append(cs, more...)
	}
	p, err := load.Start(cs, rate,
		func(slot int) load.Op { return newPutter(slot, keys, e.Params.ValueSize, fill) },
		load.Refuses)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx, e.Params.Warmup); err != nil {
		return nil, err
	}
	before, err := p.Phase(ctx, func() error { return p.Wait(ctx, e.Params.Duration) })
	if err != nil {
		return nil, err
	}
	var took time.Duration
	var sent float64
	m := e.meter()
	during, err := p.Phase(ctx, func() error {
		if err := m.beginMetering(); err != nil {
			return err
		}
		s, id, err := started()
		if err != nil {
			return err
		}
		e.others = append(e.others, s)
		if err := e.awaitInSync(ctx, p, s); err != nil {
			return err
		}
		took = time.Since(s.Began)
		if sent, err = e.sentTo(ctx, id); err != nil {
			return err
		}
		sent -= had
		return m.endMetering()
	})
	if err != nil {
		return nil, err
	}
	after, err := p.Phase(ctx, func() error { return p.Wait(ctx, e.Params.Duration) })
	if err != nil {
		return nil, err
	}
	if err := m.addProfile(); err != nil {
		return nil, err
	}
	if _, err := p.Stop(ctx); err != nil {
		return nil, err
	}
	f := []Figure{
		{Name: "in sync after", Unit: "s", Value: took.Seconds(), Better: Lower},
		{Name: "sent to it", Unit: "MB", Value: sent / 1e6, Better: Lower},
	}
	f = append(f, latencies("put before", &before.Latency)...)
	f = append(f, latencies("put until in sync", &during.Latency)...)
	f = append(f, latencies("put after", &after.Latency)...)
	f = append(f,
		Figure{Name: "put p99, until in sync ÷ before",
			Value:  float64(during.Latency.Quantile(0.99)) / float64(before.Latency.Quantile(0.99)),
			Better: Lower},
		Figure{Name: "leader CPU until in sync", Unit: "s", Value: m.usage.CPU.Seconds(),
			Better: Lower},
	)
	f = append(f, rates(during)...)
	return append(f, m.usage.auxiliary()...), nil
}

// sizeOfMissing returns the numbers of keys and revisions that the member misses in both scenarios.
func (e *Env) sizeOfMissing() (keys, revs int) {
	return e.Params.scaled(200_000, 1000), e.Params.scaled(1_000_000, 20_000)
}

func followerAway(ctx context.Context, e *Env) ([]Figure, error) {
	keys, revs := e.sizeOfMissing()
	fill := newFiller(e.Params.ValueSize)
	if err := e.startGroup(ctx); err != nil {
		return nil, err
	}
	if err := e.loadKeys(ctx, keys, e.Params.ValueSize, fill); err != nil {
		return nil, err
	}
	away := e.others[1]
	st, err := e.status(ctx, away)
	if err != nil {
		return nil, err
	}
	e.others = e.others[:1]
	if err := away.Stop(); err != nil {
		return nil, err
	}
	if err := e.writeHistory(ctx, revs, keys, e.Params.ValueSize, fill); err != nil {
		return nil, err
	}
	had, err := e.sentTo(ctx, st.Header.MemberID)
	if err != nil {
		return nil, err
	}
	return e.measureReturn(ctx, keys, fill, had, func() (*target.Server, uint64, error) {
		s, err := e.Launcher.Restart(away)
		return s, st.Header.MemberID, err
	})
}

func followerReplaced(ctx context.Context, e *Env) ([]Figure, error) {
	keys, revs := e.sizeOfMissing()
	fill := newFiller(e.Params.ValueSize)
	if err := e.startGroup(ctx); err != nil {
		return nil, err
	}
	if err := e.loadKeys(ctx, keys, e.Params.ValueSize, fill); err != nil {
		return nil, err
	}
	if err := e.writeHistory(ctx, max(revs-keys, 0), keys, e.Params.ValueSize, fill); err != nil {
		return nil, err
	}
	old := e.others[1]
	st, err := e.status(ctx, old)
	if err != nil {
		return nil, err
	}
	e.others = e.others[:1]
	if err := e.changeMembers(ctx, api.MemberRemove,
		api.AppendMemberRemove(nil, st.Header.MemberID)); err != nil {
		return nil, err
	}
	if err := old.Stop(); err != nil {
		return nil, err
	}
	seat, cluster := old.Seat()
	if err := os.RemoveAll(old.DataDir); err != nil {
		return nil, err
	}
	return e.measureReturn(ctx, keys, fill, 0, func() (*target.Server, uint64, error) {
		if err := e.changeMembers(ctx, api.MemberAdd,
			api.AppendMemberAdd(nil, "http://"+seat.Peer)); err != nil {
			return nil, 0, err
		}
		s, err := e.startMember(seat, cluster, true)
		if err != nil {
			return nil, 0, err
		}
		if _, err := s.Ready(ctx); err != nil {
			return nil, 0, err
		}
		st, err := e.status(ctx, s)
		return s, st.Header.MemberID, err
	})
}

// changeMembers changes the membership, for which members must have been connected for a while.
func (e *Env) changeMembers(ctx context.Context, method string, msg []byte) error {
	const patience = 30 * time.Second
	for end := time.Now().Add(patience); ; {
		_, err := e.callOnce(ctx, e.server, method, msg)
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
