package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/internal/kv"
)

// These errors are final for Join. The texts are etcd's.
var (
	ErrSizeNotFound = errors.New("discovery: size key not found")
	ErrBadSize      = errors.New("discovery: size key is bad")
	ErrFull         = errors.New("discovery: cluster is full")
	ErrInvalidURL   = errors.New("discovery: invalid peer URL")
)

const root = "/_etcd/registry"

// While a service does not answer, the wait between attempts doubles from the first value to the
// second.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 8 * time.Second
)

// Join registers this member, waits until all members of the new cluster have registered, and
// returns them as NAME=URL,... in the order of registration. self is this member in the same form.
// before reports whether it had registered earlier. Join fails if the registry or the configuration
// is invalid, or when ctx ends.
func Join(ctx context.Context, c Config, id uint64, self string) (list string,
	before bool, err error) {
	c = c.WithDefaults()
	s, err := dial(&c)
	if err != nil {
		return "", false, err
	}
	defer s.close()
	j := &joiner{s: s, log: c.Logger.With("discovery-token", c.Token, "discovery-endpoints",
		strings.Join(c.Endpoints, ","))}
	j.sizeKey = path.Join(root, c.Token, "_config/size")
	j.members = path.Join(root, c.Token, "members")
	j.own = path.Join(j.members, strconv.FormatUint(id, 16))
	return j.join(ctx, self)
}

type joiner struct {
	s       *service
	log     *slog.Logger
	sizeKey string
	members string
	own     string
}

func (j *joiner) join(ctx context.Context, self string) (initial string, before bool, err error) {
	list, _, err := j.readRegistry(ctx)
	if err != nil {
		return "", false, err
	}
	before = list.position(j.own) >= 0
	err = j.retry(ctx, "register this member", func() error { return j.s.put(ctx, j.own, self) })
	if err != nil {
		return "", before, err
	}
	j.log.Info("registered this member", "member-key", j.own, "member-info", self)
	for {
		list, size, err := j.readRegistry(ctx)
		if err != nil {
			return "", before, err
		}
		if len(list.peers) < size {
			j.log.Info("waiting for peers from discovery service", "cluster-size", size,
				"found-peers", len(list.peers))
			if err := j.waitForPeers(ctx, list, size); err != nil {
				if ctx.Err() != nil {
					return "", before, ctx.Err()
				}
				// The connection broke, or a compaction ended the watch. Reading the present keys
				// is enough.
				j.log.Warn("the wait for peers was interrupted", "error", err)
				continue
			}
		}
		j.log.Info("found all needed peers from discovery service", "cluster-size", size,
			"found-peers", len(list.peers))
		if initial, err = list.initialCluster(size); err != nil {
			return "", before, err
		}
		j.log.Info("discovery joined cluster successfully", "cluster", initial)
		return initial, before, nil
	}
}

// readRegistry reads the size of the cluster and the registered peers. It fails if the cluster is
// complete without this member.
func (j *joiner) readRegistry(ctx context.Context) (list *registered, size int, err error) {
	err = j.retry(ctx, "read the registry", func() error {
		res, err := j.s.get(ctx, j.sizeKey, false)
		if err != nil {
			return err
		}
		if len(res.Kvs) == 0 {
			return ErrSizeNotFound
		}
		if size, err = strconv.Atoi(string(res.Kvs[0].Value)); err != nil || size < 1 {
			return fmt.Errorf("%w: %s is %q, want a whole number from 1", ErrBadSize, j.sizeKey,
				res.Kvs[0].Value)
		}
		if res, err = j.s.get(ctx, j.members, true); err != nil {
			return err
		}
		list = &registered{next: res.Header.Revision + 1}
		for _, kv := range res.Kvs {
			j.addPeer(list, kv)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if i := list.position(j.own); i >= size || i < 0 && len(list.peers) >= size {
		return nil, 0, ErrFull
	}
	return list, size, nil
}

// waitForPeers watches the registry until list has size peers.
func (j *joiner) waitForPeers(ctx context.Context, list *registered, size int) error {
	return j.s.watch(ctx, j.members, list.next, func(events []*mvccpb.Event) (done bool) {
		for _, e := range events {
			if e.Type == mvccpb.PUT {
				j.addPeer(list, e.Kv)
			}
		}
		return len(list.peers) >= size
	})
}

func (j *joiner) addPeer(list *registered, kv *mvccpb.KeyValue) {
	p := peer{key: strings.TrimSpace(string(kv.Key)), info: strings.TrimSpace(string(kv.Value)),
		created: kv.CreateRevision}
	if err := list.add(p); err != nil {
		j.log.Warn(err.Error(), "member-key", p.key, "member-info", p.info)
		return
	}
	j.log.Info("found peer from discovery service", "member-key", p.key, "member-info", p.info)
}

// retry calls f until it succeeds, its error is final, or ctx ends.
func (j *joiner) retry(ctx context.Context, what string, f func() error) error {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := f()
		if err == nil || errors.Is(err, ErrSizeNotFound) ||
			errors.Is(err, ErrBadSize) || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		j.log.Warn("retry connecting to discovery service", "reason", what, "backoff",
			wait.String(), "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// peer is one member in the registry.
type peer struct {
	key, info string
	created   int64
}

// registered holds the peers found so far, by create revision, and the revision at which the watch
// goes on.
type registered struct {
	peers []peer
	next  int64
}

func (r *registered) add(p peer) error {
	if !strings.Contains(p.info, "=") {
		return errors.New("invalid peer info returned from discovery service")
	}
	if r.position(p.key) >= 0 {
		return errors.New("found duplicate peer from discovery service")
	}
	i, _ := slices.BinarySearchFunc(r.peers, p,
		func(a, b peer) int { return cmp.Compare(a.created, b.created) })
	r.peers = slices.Insert(r.peers, i, p)
	return nil
}

// position returns how many peers registered before the given key, -1 if the key is not registered.
func (r *registered) position(key string) int {
	return slices.IndexFunc(r.peers, func(p peer) bool { return p.key == key })
}

func (r *registered) initialCluster(size int) (string, error) {
	var parts []string
	for _, p := range r.peers[:size] {
		for _, part := range strings.Split(p.info, ",") {
			if part == "" {
				continue
			}
			name, u, _ := strings.Cut(part, "=")
			if err := checkURL(strings.TrimSpace(u)); name == "" || err != nil {
				return "", fmt.Errorf("%w: %s is %q", ErrInvalidURL, p.key, p.info)
			}
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ","), nil
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	switch u.Scheme {
	case "unix", "unixs":
		return nil
	case "http", "https":
		_, _, err := net.SplitHostPort(u.Host)
		return err
	}
	return ErrInvalidURL
}

func rangeRequest(key string, prefix bool) *pb.RangeRequest {
	r := &pb.RangeRequest{Key: []byte(key)}
	if prefix {
		r.RangeEnd = kv.PrefixEnd([]byte(key))
	}
	return r
}
