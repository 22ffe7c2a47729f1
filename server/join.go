package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"vigil/internal/health"
	"vigil/internal/member/calls"
	"vigil/internal/member/peer"
	"vigil/internal/member/replica"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history/inspect"
)

var le = binary.LittleEndian

const (
	// askTimeout bounds asking other members for the membership, askInterval is the pause between
	// two attempts.
	askTimeout  = 3 * time.Second
	askInterval = 100 * time.Millisecond
	// closedRounds is the number of rounds in which a member must close the connection without an
	// answer to count as absent.
	closedRounds = 3
	// waitInterval is the pause between two checks whether the other members still belong to
	// another cluster.
	waitInterval = time.Second
	// freshTimeout bounds how long the asked member waits for a linearizable read.
	freshTimeout = 1500 * time.Millisecond
	// askNow is the payload of calls.Membership by a member of a new cluster, whose members may all
	// be waiting for each other.
	askNow = 1
	// maxMembers bounds the members accepted from others. Only the size of a call bounds the
	// removed ids: a cluster keeps all of them.
	maxMembers = 1 << 12
)

// describeCluster answers calls.Membership: version u8 = 1, the records of the membership as id
// u64, length u32 and value, little endian. The records hold removed ids too.
func (m *Member) describeCluster(ctx context.Context, now bool) []byte {
	ctx, cancel := context.WithTimeout(ctx, freshTimeout)
	defer cancel()
	// Without a leader, this member's own knowledge must suffice.
	if !now || m.replica.Status().Leader != 0 {
		_ = m.replica.Linearize(ctx)
	}
	b := []byte{1}
	for _, r := range m.replica.Membership().Records() {
		b = le.AppendUint64(b, r.ID)
		b = le.AppendUint32(b, uint32(len(r.Value)))
		b = append(b, r.Value...)
	}
	return b
}

var errDescription = errors.New("malformed membership")

func decodeCluster(b []byte) (*cluster.State, error) {
	if len(b) == 0 || b[0] != 1 {
		return nil, errDescription
	}
	s := &cluster.State{}
	last := uint64(0)
	for rest := b[1:]; len(rest) > 0; {
		if len(rest) < 12 || len(s.Members()) >= maxMembers {
			return nil, errDescription
		}
		id, size := le.Uint64(rest), int(le.Uint32(rest[8:]))
		// They are sorted, so that each is added at the end.
		if id <= last {
			return nil, errDescription
		}
		last = id
		if rest = rest[12:]; size > len(rest) {
			return nil, errDescription
		}
		if err := s.Load(cluster.Record{ID: id}.Key(), rest[:size]); err != nil {
			return nil, err
		}
		rest = rest[size:]
	}
	return s, nil
}

// askCluster asks the other members of the initial cluster for the membership, and returns the
// first answer. It repeats the question until askTimeout; with askNow only while one of them seems
// to be present.
func (m *Member) askCluster(ctx context.Context, members []cluster.Member,
	payload ...byte) (id uint64, s *cluster.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for round := 1; ; round++ {
		id, s, errs := m.askAll(ctx, members, payload)
		if s != nil {
			return id, s, nil
		}
		if ctx.Err() == nil || err == nil {
			err = errors.Join(errs...) // earlier errors say more than the timeout
		}
		present := func(e error) bool { return !absent(e, round >= closedRounds) }
		if len(payload) > 0 && !slices.ContainsFunc(errs, present) {
			return 0, nil, err
		}
		select {
		case <-time.After(askInterval):
		case <-ctx.Done():
			return 0, nil, err
		}
	}
}

// absent reports whether an error shows that no member is at an address. A refused connection and a
// name that does not exist show it at once. A closed connection, or another failure of the name or
// the route, counts only if it repeats: a proxy or a mesh accepts connections for a member that has
// not started and closes them, but so does a member that restarts. Silence is not absence: a member
// that starts accepts connections before it answers.
func absent(err error, again bool) bool {
	var name *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return true
	case errors.As(err, &name):
		return name.IsNotFound || again && !name.IsTimeout
	}
	return again && slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET,
		syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH},
		func(target error) bool { return errors.Is(err, target) })
}

// askAll asks all of them once, concurrently.
func (m *Member) askAll(ctx context.Context, members []cluster.Member, payload []byte) (id uint64,
	s *cluster.State, errs []error) {
	type answer struct {
		id  uint64
		s   *cluster.State
		err error
	}
	client := peer.Client{Version: Version, TLS: m.peerTLS.Client, LocalAddr: m.cfg.peerLocalAddr(),
		Dial: m.cfg.dial()}
	asked := 0
	answers := make(chan answer, 64)
	for _, o := range members {
		if o.Name == m.cfg.Name {
			continue
		}
		for _, u := range o.PeerURLs {
			if asked == cap(answers) {
				break
			}
			asked++
			go func() {
				a, err := client.Call(ctx, u, calls.Membership, payload)
				if err != nil {
					answers <- answer{err: err}
					return
				}
				s, err := decodeCluster(a.Payload)
				if err != nil {
					err = fmt.Errorf("%s: %w", u, err)
				}
				answers <- answer{a.ClusterID, s, err}
			}()
		}
	}
	for range asked {
		a := <-answers
		if a.err == nil {
			return a.id, a.s, nil
		}
		errs = append(errs, a.err)
	}
	return 0, nil, errs
}

// origin returns the start of a member without data: the members of a new cluster, or the cluster
// that it joins. It writes nothing. A member with any part of its data starts with that part:
// opening the data completes an interrupted snapshot, and refuses data that it cannot complete.
func (m *Member) origin(ctx context.Context) (members []cluster.Member,
	join *replica.Joining, err error) {
	c := &m.cfg
	left, err := datadir.FindRemains(c.FS, filepath.Join(c.DataDir, datadir.HistoryName), c.WALDir)
	if err != nil {
		return nil, nil, withDataStep(fmt.Errorf("data directory %s: %w", c.DataDir, err))
	}
	switch {
	case left.Restoring && !left.Store:
		return nil, nil, datadir.ErrRestoring(c.DataDir)
	case left.Store && !left.Log && !left.Started:
		return nil, nil, m.notStartedSince(ctx)
	case !left.None() && c.Discovery.Wanted():
		m.log.Warn("discovery token is ignored since cluster already initialized; valid logs "+
			"are found", "wal-dir", c.WALDir)
		return nil, nil, nil
	case !left.None():
		return nil, nil, nil
	case c.ForceNewCluster:
		m.log.Warn("--force-new-cluster has no effect: the data directory has no data to keep; "+
			"if it should have, stop this member and check --data-dir",
			"data-dir", c.DataDir)
		c.ForceNewCluster = false
	}
	members, before, err := m.findMembers(ctx)
	if err == nil {
		m.startup.await(health.ForMembers, "an answer of the other members of --initial-cluster")
	}
	switch {
	case err != nil:
		return nil, nil, err
	case c.InitialClusterState == "existing":
		join, err = m.join(ctx, members)
		return nil, join, err
	case len(members) > 1 && before:
		return members, nil, m.notYetStarted(ctx, members)
	}
	return members, nil, nil
}

// notYetStarted refuses to create a member again that the cluster knows as started: its data is
// lost, and with it its vote and its acknowledged writes. While a member of --initial-cluster
// belongs to another cluster, it waits: somebody may be replacing the members of a cluster with
// members of a new one, one after the other.
func (m *Member) notYetStarted(ctx context.Context, members []cluster.Member) error {
	all, err := cluster.Initial(m.cfg.InitialClusterToken, members)
	if err != nil {
		return fmt.Errorf("--initial-cluster: %w", err)
	}
	begins := cluster.ID(all.IDs())
	for first := true; ; first = false {
		id, known, err := m.askCluster(ctx, members, askNow)
		if err != nil {
			return ctx.Err() // no member answers yet
		}
		if err := m.notStartedAs(all, known); err != nil || id == begins {
			return err
		}
		m.startup.await(health.ForMembers,
			fmt.Sprintf("its start: a member of --initial-cluster belongs to another cluster, "+
				"%x, and this one would make %x; %s", id, begins, otherCluster))
		if first {
			m.log.Warn("waiting before the start: a member of --initial-cluster belongs to "+
				"another cluster; "+otherCluster,
				hexID("other-cluster-id", id), hexID("cluster-id", begins),
				"data-dir", m.cfg.DataDir)
		}
		select {
		case <-time.After(waitInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// otherCluster is the advice if a member of --initial-cluster belongs to another cluster.
const otherCluster = "if that cluster was restored from a backup, stop this member and restore " +
	"it from the same backup, with the same --initial-cluster and --initial-cluster-token; " +
	"if this member is new to it, stop this member, add it with `etcdctl member add` and start it with --initial-cluster-state=existing; " +
	"if that cluster is to be replaced, stop the rest of its members and empty their data " +
	"directories"

// notStartedAs refuses to create the member of this name again if a cluster knows it as started or
// removed.
func (m *Member) notStartedAs(all, known *cluster.State) error {
	for _, x := range all.Members() {
		if x.Name != m.cfg.Name {
			continue
		}
		k, ok := known.Member(x.ID)
		switch {
		case ok && len(k.ClientURLs) > 0:
			return fmt.Errorf("member %x has already been bootstrapped and %s has no data: check "+
				"--data-dir, or %s", x.ID, m.cfg.DataDir, m.replace(k))
		case known.Removed(x.ID):
			return fmt.Errorf("member %x has already been bootstrapped, and was removed from the "+
				"cluster: run %s and start it with "+
				"--initial-cluster-state=existing", x.ID, m.add(x))
		}
	}
	return nil
}

// hexID is an attribute of the log.
func hexID(key string, id uint64) slog.Attr { return slog.String(key, fmt.Sprintf("%x", id)) }

// notStartedSince refuses to start a member from a backup if a cluster restored from the same
// backup knows the member as started. The member has voted and acknowledged writes there, and the
// backup has none of that.
func (m *Member) notStartedSince(ctx context.Context) error {
	c := &m.cfg
	members, err := c.initialMembers()
	if err != nil || len(members) < 2 || c.Discovery.Wanted() || c.ForceNewCluster {
		return nil // there is no member to ask
	}
	all, err := cluster.Initial(c.InitialClusterToken, members)
	if err != nil {
		return nil
	}
	id, known, err := m.askCluster(ctx, members, askNow)
	if err != nil {
		return nil // no member answers yet
	}
	for _, x := range all.Members() {
		if k, ok := known.Member(x.ID); x.Name != c.Name || !known.Removed(x.ID) &&
			(!ok || len(k.ClientURLs) == 0) {
			continue
		}
		store, err := inspect.Start(inspect.Options{FS: c.FS,
			Dir: filepath.Join(c.DataDir, datadir.HistoryName)})
		if err != nil {
			return withDataStep(fmt.Errorf("data directory %s: %w", c.DataDir, err))
		}
		for range store.Files(ctx) {
			if store.ClusterID != 0 {
				break
			}
		}
		// A member that joins may have the name and the URL of one that was removed.
		if store.ClusterID == id && store.MemberID == x.ID {
			return fmt.Errorf("member %x has already been started in cluster %x, and %s is as a restore has left it: what the member has acknowledged since is not in it; check --data-dir, or remove the directory, run `etcdctl member remove %x` and %s at another member, and start it with --initial-cluster-state=existing",
				x.ID, id, c.DataDir, x.ID, m.add(x))
		}
	}
	return nil
}

// replace returns the advice for a member that lost its data.
func (m *Member) replace(x cluster.Member) string {
	return fmt.Sprintf("if its disk is lost, so that it must not vote any more, run `etcdctl member remove %x` and %s at another member, and start it with --initial-cluster-state=existing",
		x.ID, m.add(x))
}

func (m *Member) add(x cluster.Member) string {
	return fmt.Sprintf("`etcdctl member add %s --peer-urls=%s`", m.cfg.Name,
		strings.Join(x.PeerURLs, ","))
}

// join asks the members of the initial cluster for the cluster to which this member was added.
func (m *Member) join(ctx context.Context, members []cluster.Member) (*replica.Joining, error) {
	if len(members) < 2 {
		return nil, configError(errors.New("--initial-cluster-state=existing: --initial-cluster " +
			"names no other member to join: list all members of the cluster there, this one " +
			"included"))
	}
	id, known, err := m.askCluster(ctx, members)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch cluster info from peer urls: could not retrieve "+
			"cluster information from the given URLs: %w: start the other members, or correct "+
			"their URLs in --initial-cluster; for a new cluster leave out "+
			"--initial-cluster-state=existing", err)
	}
	if level := known.Level(); level > fsm.Level {
		return nil, fmt.Errorf("cluster %x uses requests of level %d and this version of the "+
			"program knows %d: run the version that its members run", id, level, fsm.Level)
	}
	wrong := func(format string, args ...any) error {
		var list []string
		for _, k := range known.Members() {
			list = append(list, fmt.Sprintf("%x=%s", k.ID, strings.Join(k.PeerURLs, ",")))
		}
		return fmt.Errorf("--initial-cluster does not match cluster %x, whose members are %s: "+
			"%w: list in --initial-cluster what vigilctl member list shows, after vigilctl "+
			"member add for a member that is "+
			"not there", id, strings.Join(list, " "), fmt.Errorf(format, args...))
	}
	if a, b := len(known.Members()), len(members); a != b {
		return nil, wrong("member count is unequal: it has %d members and --initial-cluster "+
			"names %d", a, b)
	}
	// Names are not compared: a member that has not published its own may be listed under any.
	listed, err := matchMembers(ctx, known.Members(), members, m.log)
	if err != nil {
		return nil, wrong("%w", err)
	}
	self := known.Members()[slices.Index(listed, m.cfg.Name)]
	if len(self.ClientURLs) > 0 {
		return nil, fmt.Errorf("member %x of cluster %x has been started before and %s has no "+
			"data: check --data-dir, or %s", self.ID, id, m.cfg.DataDir, m.replace(self))
	}
	return &replica.Joining{ClusterID: id, MemberID: self.ID, Members: known.Members()}, nil
}
