package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/edge/listen"
	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/kv"
	"vigil/internal/member/calls"
	"vigil/internal/member/peer"
	"vigil/internal/member/replica"
	"vigil/internal/member/replica/members"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
)

// network adapts the transport to the replica.
type network struct{ *peer.Transport }

// SetMembers implements replica.Network.
func (n network) SetMembers(index uint64, members *cluster.State) {
	var list []peer.Member
	for _, m := range members.Members() {
		list = append(list, peer.Member{ID: m.ID, URLs: m.PeerURLs})
	}
	n.Transport.SetMembers(index, list, members.RemovedIDs())
}

// peerLocalAddr returns the local IP address of connections to other members, empty for the choice
// of the system.
func (c *Config) peerLocalAddr() string {
	if !c.SetMemberLocalAddr {
		return ""
	}
	return listen.LocalAddr(c.InitialAdvertisePeerURLs)
}

// dial returns the function that dials other members, nil for the network of the machine.
func (c *Config) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Network == nil {
		return nil
	}
	return c.Network.Dial
}

// openTransport makes the transport of the member that owns the data.
func (m *Member) openTransport(data *replica.Data) error {
	clusterID, memberID := data.Identity()
	o := peer.Options{
		ClusterID: clusterID,
		MemberID:  memberID,
		Version:   Version,
		PeerURLs:  data.Self().PeerURLs,
		HTTP:      true,
		Logger:    m.log,
		ClientTLS: m.peerTLS.Client,
		LocalAddr: m.cfg.peerLocalAddr(),
		Dial:      m.cfg.dial(),
		// A message contains at least one entry, which may hold the largest request. Other members
		// may allow larger requests than this one.
		MaxMessageBytes: fsm.MaxRequestBytes + 8<<20,
		// A follower does not repeat a proposal that it forwarded to the leader in the same term.
		// So the queue has room for all of them: the small ones, and two of the largest.
		MaxQueueBytes: 64<<20 + 2*m.cfg.MaxRequestBytes,
	}
	if m.cfg.PeerTLS.Serves() {
		o.ServerTLS = m.peerTLS.Server
	}
	switch {
	case o.LocalAddr != "":
		m.log.Info("connections to other members come from one address",
			"local-address", o.LocalAddr)
	case m.cfg.SetMemberLocalAddr:
		m.log.Warn("--feature-gates=SetMemberLocalAddr=true has no effect: "+
			"--initial-advertise-peer-urls has no IP address but loopback or unspecified ones",
			"initial-advertise-peer-urls", m.cfg.InitialAdvertisePeerURLs)
	}
	var err error
	m.transport, err = peer.New(o)
	return err
}

// peerCalls answers other members.
type peerCalls struct{ m *Member }

func (c peerCalls) ServeCall(ctx context.Context, from peer.Caller, kind uint8,
	payload []byte) ([]byte, error) {
	switch kind {
	case calls.SnapshotOffer:
		return c.m.replica.OfferSnapshot(ctx, from.Member, payload)
	case calls.Lease:
		return c.m.replica.Leases.ServeCall(ctx, payload)
	case calls.Hashes:
		return c.m.replica.AnswerHash(ctx, payload)
	case calls.Promote:
		return encodeRefusal(c.m.replica.Members.ServePromotion(ctx, payload)), nil
	case calls.Archive:
		return c.m.archive.archiver.Handle(payload)
	case calls.Sample:
		return consoleCalls(c).answerSample()
	case calls.Watchers:
		return consoleCalls(c).answerWatchers(payload)
	case calls.Compare:
		return consoleCalls(c).answerComparison(ctx, payload)
	case calls.Membership:
		return c.m.describeCluster(ctx, len(payload) == 1 && payload[0] == askNow), nil
	}
	return nil, &peer.Error{Code: peer.CodeUnsupported, Text: fmt.Sprintf("call of kind %d", kind)}
}

// refusals are the errors of a promotion that keep their identity across members. Their positions
// are part of the protocol.
var refusals = [...]error{1: kv.ErrNotLeader, 2: kv.ErrMemberNotFound, 3: kv.ErrNotLearner,
	4: kv.ErrLearnerNotReady,
	5: kv.ErrNotEnoughStarted, 6: kv.ErrUnhealthy, 7: kv.ErrTimeout, 8: kv.ErrTimeoutLeaderFailure,
	9: kv.ErrTimeoutConnectionLost, 10: kv.ErrStopped,
	11: kv.ErrUserEmpty, 12: kv.ErrUserNotFound, 13: kv.ErrAuthOldRevision,
	14: kv.ErrPermissionDenied}

// encodeRefusal returns the number of a refusal, 0 for none, or 255 and a text.
func encodeRefusal(err error) []byte {
	if err == nil {
		return []byte{0}
	}
	for i, r := range refusals {
		if r != nil && errors.Is(err, r) {
			return []byte{byte(i)}
		}
	}
	return append([]byte{255}, err.Error()...)
}

func decodeRefusal(b []byte) error {
	switch {
	case len(b) == 0:
		return errors.New("the leader gave an empty answer")
	case b[0] == 0:
		return nil
	case int(b[0]) < len(refusals):
		return refusals[b[0]]
	}
	return fmt.Errorf("the leader says: %q", b[1:])
}

// promote promotes a learner, here or with a call to the leader: only the leader can do it.
func (m *Member) promote(ctx context.Context, id uint64) ([]cluster.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, kv.RequestTimeout(m.cfg.ElectionTimeout))
	defer cancel()
	for {
		members, err := m.replica.Members.PromoteMember(ctx, id)
		if !errors.Is(err, kv.ErrNotLeader) {
			if err == nil {
				m.promotions.ok.Inc()
			} else {
				m.promotions.failed.WithLabelValues(apierror.Text(err)).Inc()
			}
			return members, err
		}
		if leader := m.replica.Status().Leader; leader != 0 {
			var question, answer []byte
			if question, err = m.replica.Members.EncodePromotion(ctx, id); err != nil {
				return nil, err
			}
			if answer, err = m.transport.Call(ctx, leader, calls.Promote, question); err == nil {
				err = decodeRefusal(answer)
				if err == nil {
					// What this member answers must be as new.
					return m.replica.Members.List(ctx, true)
				}
				if !errors.Is(err, kv.ErrNotLeader) {
					return nil, err
				}
			}
		}
		select {
		case <-time.After(m.cfg.HeartbeatInterval):
		case <-ctx.Done():
			switch {
			case m.replica.Status().Leader == 0:
				return nil, kv.ErrNoLeader
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				return nil, kv.ErrTimeout
			}
			return nil, ctx.Err()
		}
	}
}

// promotions counts the requests to promote that this member got as the leader.
type promotions struct {
	ok     prometheus.Counter
	failed *prometheus.CounterVec
}

func newPromotions() promotions {
	return promotions{
		prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_server_learner_promote_successes",
			Help: "Learners promoted while this member led."}),
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_server_learner_promote_failures", Help: "Promotions refused while this member led."}, []string{"Reason"}),
	}
}

// servePeers accepts connections of other members.
func (m *Member) servePeers() error {
	for _, p := range m.peers {
		if p.secure {
			m.serve(func() error { return m.transport.ServeTLS(p.l) })
		} else {
			m.serve(func() error { return m.transport.Serve(p.l) })
		}
	}
	m.serve(func() error { return m.web.peer.Serve(m.transport.HTTP()) })
	return m.transport.Start(peer.Receivers{Raft: m.replica, Calls: peerCalls{m}, Bulk: m.replica})
}

// leaveAfter is how long a member that has applied its removal serves clients if no other member
// reports the removal. The value is etcd's.
const leaveAfter = time.Second

// removal is how a member learns of its removal and reacts to it.
type removal interface {
	// Removed is closed when the member has applied its removal.
	Removed() <-chan struct{}
	// NoteRemoved records that another member reports the removal, and returns whether that is
	// final.
	NoteRemoved(by uint64) bool
	// Leave ends the service for clients.
	Leave()
}

// watchRemoval ends the member after it was removed.
func (m *Member) watchRemoval(ctx context.Context) {
	id := m.replica.Header().MemberID
	leads := func() bool { return m.replica.Status().Leader == id }
	if awaitRemoval(ctx, ownRemoval{m.replica.Members, m.replica}, m.transport.Removed(), leads,
		m.cfg.HeartbeatInterval,
		m.cfg.ElectionTimeout) {
		m.log.Warn("this member was removed from the cluster: stopping", "local-member-id",
			fmt.Sprintf("%x", id))
		m.fail(ErrRemoved)
	}
}

// ownRemoval is the removal of this member.
type ownRemoval struct {
	*members.Members
	replica *replica.Replica
}

func (r ownRemoval) Leave() { r.replica.Leave() }

// awaitRemoval waits until a member was removed and must stop. It returns false if ctx ends first.
// The member learns of its removal from its own log or from others. They report it once they have
// applied it, and no longer need this member then.
func awaitRemoval(ctx context.Context, r removal, reports <-chan uint64, leads func() bool,
	heartbeat, election time.Duration) bool {
	applied := r.Removed()
	var leave, last, poll <-chan time.Time
	for ended := false; !ended; {
		select {
		case by := <-reports:
			ended = r.NoteRemoved(by)
		case <-applied:
			// A leader hands over, which it tries again after an election timeout, and may have to
			// vote.
			applied, leave, last = nil, time.After(leaveAfter), time.After(leaveAfter+election*5/2)
		case <-leave:
			// This member does not know what the others have decided since.
			r.Leave()
			ticker := time.NewTicker(heartbeat)
			defer ticker.Stop()
			leave, poll = nil, ticker.C
			ended = !leads()
		case <-poll:
			ended = !leads()
		case <-last:
			ended = true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// ErrRemoved is what Failed receives when the member was removed from its cluster.
var ErrRemoved = replica.ErrRemoved

// showMembers answers /members as etcd's peer port does.
func (m *Member) showMembers(w http.ResponseWriter, _ *http.Request) {
	type member struct {
		ID         uint64   `json:"id"`
		PeerURLs   []string `json:"peerURLs"`
		IsLearner  bool     `json:"isLearner,omitempty"`
		Name       string   `json:"name,omitempty"`
		ClientURLs []string `json:"clientURLs,omitempty"`
	}
	w.Header().Set("X-Etcd-Cluster-ID", strconv.FormatUint(m.replica.Header().ClusterID, 16))
	list := []member{}
	for _, x := range m.replica.Membership().Members() {
		list = append(list, member{x.ID, x.PeerURLs, x.Learner, x.Name, x.ClientURLs})
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(list)
}
