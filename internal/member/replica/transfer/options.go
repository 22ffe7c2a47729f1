package transfer

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/calls"
	"vigil/internal/member/raftnode"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Member is the member whose state is sent or replaced.
type Member interface {
	// Present returns the store's history and index. A snapshot that is installed replaces both.
	Present() (*history.Log, *mvcc.Store)
	// Applied returns the applied position.
	Applied() uint64
}

// Raft is the member's raft node.
type Raft interface {
	Status() raftnode.Status
	InstallSnapshot(m *raftpb.Message) (accepted bool, err error)
	ReportSnapshot(to uint64, ok bool)
	ReportUnreachable(to uint64)
}

// Network reaches other members.
type Network interface {
	calls.Caller
	// SendBulk sends metadata and everything in r to a member. It returns nil after the member's
	// ReceiveBulk has returned nil.
	SendBulk(ctx context.Context, to uint64, meta []byte, r io.Reader) error
}

// Options configure a Sender and a Receiver.
type Options struct {
	ClusterID, MemberID uint64
	Member              Member
	Network             Network
	Place               Place
	// NoteDamage counts and reports an error that is damage on disk, and returns err.
	NoteDamage func(err error) error
	// History are the options of the store.
	History history.Options
	// Stopping is closed when the member stops.
	Stopping <-chan struct{}

	// MaxSending limits the snapshots that are sent at once. Further members wait.
	MaxSending int
	// BytesPerSecond limits the rate of each snapshot; 0 means no limit.
	BytesPerSecond int64
	// OfferTimeout limits how long the sender looks for the history of a receiver, and how long the
	// receiver keeps its copy.
	OfferTimeout time.Duration
	Logger       *slog.Logger
}

// progressInterval is how often a long transfer logs its progress.
const progressInterval = 5 * time.Second

// SendStats counts snapshots that were sent.
type SendStats struct {
	// Full and Incremental count the snapshots that were sent, Failures the ones that failed. Bytes
	// includes the failed ones.
	Full, Incremental, Failures, Bytes uint64
	// Sending is the number of snapshots that are being sent now.
	Sending int
}

// ReceiveStats counts snapshots that were received.
type ReceiveStats struct {
	// Received counts the snapshots that arrived whole, Installed how many of them were needed, and
	// Failures the ones that did not arrive whole. Bytes includes all.
	Received, Installed, Failures, Bytes uint64
	// Installing is set while the store is replaced.
	Installing bool
}

func memberAttr(id uint64) slog.Attr {
	return slog.String("remote-peer-id", strconv.FormatUint(id, 16))
}
