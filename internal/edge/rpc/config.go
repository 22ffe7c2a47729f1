package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"vigil/internal/edge/rpc/times"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
	"vigil/internal/store/watch"
)

// KV is the part of the member that the KV service uses. The calls of one client may be concurrent and in any order. A call returns when its outcome is known or its context ends; errors are kv's.
type KV interface {
	Range(context.Context, *kv.RangeRequest) (*kv.RangeResult, error)
	// Do carries out a write. It chooses the id of a lease if that is 0.
	Do(context.Context, kv.Write) kv.Outcome
	Compact(context.Context, *kv.CompactRequest) (*kv.CompactResult, error)
}

// WatchStream is the hub's side of one watch stream. Either Next or Take is called, by one goroutine at a time; Create, Cancel
// and Progress by another; Close once, by any. After Close the others may still be called, and must do nothing.
type WatchStream interface {
	// Create, Cancel and Progress do not fail: Next returns their responses, in order. Create has none, and returns false, if
	// Hub.Withheld has changed since the request.
	Create(watch.CreateRequest) bool
	Cancel(id int64)
	Progress()
	// Refuse answers a rejected create with the reason. It is called by the goroutine that calls Create.
	Refuse(reason string)
	// Revoke cancels the watchers for whose range refuse returns a reason. It may be called concurrently.
	Revoke(refuse func(key, end []byte) (reason string))
	// Next waits until there are responses, or the context ends, and appends what is ready to dst.
	Next(ctx context.Context, dst []watch.Response) ([]watch.Response, error)
	// NotifyReady is called first. It lets the stream be reported whenever Take has something to return: after the call, and after
	// each call of Take that has returned nothing.
	NotifyReady(to *watch.Ready, owner any)
	// Take appends what is ready to dst, up to about most bytes, without waiting.
	Take(dst []watch.Response, most int64) ([]watch.Response, error)
	Close()
}

// WatchHub keeps back events of watchers after each change of users or roles, while auth is enabled.
type WatchHub interface {
	// Withheld returns how often that was.
	Withheld() int64
	// Release delivers what is kept back because of the first n changes: the watchers were checked after them.
	Release(n int64)
}

// Member is the state of the member itself. All methods except Members and Reclaim return at once.
type Member interface {
	// Header returns the header of a response at the present revision.
	Header() kv.Header
	// Leader is the id of the leader, 0 if there is none.
	Leader() uint64
	IsLearner() bool
	// Trusted is false while the member rejects reads and writes because its data differ from the majority.
	Trusted() bool
	Status() Status
	// Reclaim starts to free the disk space of compacted data, and returns when that space counts as free.
	Reclaim(ctx context.Context) error
	// Members lists the cluster; if linearizable, as of a moment after the call began.
	Members(ctx context.Context, linearizable bool) ([]MemberInfo, error)
}

// Status is the state of the member beyond the header of a response.
type Status struct {
	// Version is the level of the API, StorageVersion that of the data.
	Version, StorageVersion string
	// DBSize is the size of the history on disk, DBSizeInUse the part of it that is live,
	// DBSizeQuota the limit, all in bytes.
	DBSize, DBSizeInUse, DBSizeQuota int64
	// RaftIndex is the commit index.
	RaftIndex, RaftAppliedIndex uint64
	// Alarms are the active ones.
	Alarms []kv.Alarm
	// DiskFull is set while puts are rejected because the disk of this member is full.
	DiskFull bool
	// ApplyWaits is set while committed entries cannot be applied because of that, LogWaits while the raft log takes no entries.
	ApplyWaits, LogWaits bool
	// Away says which files of the member are not where their paths lead, empty if all are: then it accepts no writes.
	Away string
	// LeaderLost is when the member lost its last leader, the zero time if it knows one, or never did.
	LeaderLost time.Time
}

// Alarms is the part of the member that the maintenance service uses for alarms. Errors are kv's.
type Alarms interface {
	// Alarms lists the active alarms as of a moment after the call began.
	Alarms(context.Context) ([]kv.Alarm, error)
	// ChangeAlarm raises or clears an alarm. The result is nil if there was nothing to do: an alarm
	// that was not active was cleared, or one of no type named.
	ChangeAlarm(context.Context, kv.AlarmChange) (*kv.Alarm, error)
}

// Cluster changes the membership and moves leadership. Errors are kv's.
type Cluster interface {
	// AddMember returns the new member and all of them, the others all of them.
	AddMember(ctx context.Context, peerURLs []string, learner bool) (MemberInfo, []MemberInfo, error)
	RemoveMember(ctx context.Context, id uint64) ([]MemberInfo, error)
	UpdateMember(ctx context.Context, id uint64, peerURLs []string) ([]MemberInfo, error)
	PromoteMember(ctx context.Context, id uint64) ([]MemberInfo, error)
	// MoveLeader returns when the member leads.
	MoveLeader(ctx context.Context, to uint64) error
}

// MemberInfo is one member of the cluster. One that never started has no name and client URLs.
type MemberInfo struct {
	ID                   uint64
	Name                 string
	PeerURLs, ClientURLs []string
	IsLearner            bool
}

// Config is what a server needs. The zero value of every field from Logger on is its default, unless noted.
type Config struct {
	KV     KV
	Member Member
	// Cluster may be nil; then its calls answer Unimplemented.
	Cluster Cluster
	Hasher  Hasher
	// Snapshots may be nil; then there are none.
	Snapshots Snapshots
	Alarms    Alarms
	// Versions may be nil; then there is no downgrade.
	Versions Versions
	// Leases may be nil; then there is no such service.
	Leases Leases
	// Times may be nil; then there is no such service, and times in the metadata of calls are ignored.
	Times times.Source
	// Starter may be nil; then every call has a handler.
	Starter Starter
	// Auth may be nil; then there are no users, and everyone may do everything.
	Auth Auth
	// WatchHub is required with Auth.
	WatchHub WatchHub
	// CertificateUsers makes the common name of a client's certificate its user, if the call has no token.
	CertificateUsers bool
	// NewWatchStream makes the hub's side of a new watch stream. One whose Next and Take return
	// kv.ErrCorrupt is refused.
	NewWatchStream func(watch.StreamInfo) WatchStream

	// Ranges is the budget from which KV takes the memory of large results; default none.
	Ranges *ration.Budget

	Logger  *slog.Logger
	Metrics *Metrics
	// Stats, if set, is notified of the beginning and the end of each call.
	Stats transport.StatsHandler

	// CallMade, if set, receives each connection on which a client makes a call, once.
	CallMade func(net.Conn)

	// HTTP serves requests that are not gRPC on connections of HTTP/2; nil rejects them.
	HTTP http.Handler

	// MaxRequestBytes is the largest request that may be proposed, default 1.5 MiB. A message may
	// be half a MiB larger before the transport refuses it.
	MaxRequestBytes int
	// MaxTxnOps is the largest number of operations on one level of a transaction, default 128.
	MaxTxnOps int
	// MaxConcurrentStreams is the largest number of calls at once on a connection, default no limit.
	MaxConcurrentStreams uint32
	// ElectionTimeout is the election timeout of the member. It is required.
	// Streams that require a leader end when there has been none for three times as long.
	ElectionTimeout time.Duration
	// Ticking is when the clock of raft began, so that a member at rest is woken once for the ticks of both. Default: now.
	Ticking time.Time
	// WarnUnary is how long a unary call may take before a line about it is logged, default 300 ms;
	// negative means never.
	WarnUnary time.Duration

	// KeepAliveMinTime is the shortest interval of a client's pings, default 5 s; KeepAliveInterval
	// after how much silence the server pings, default 2 h; KeepAliveTimeout how long it waits for
	// the answer, default 20 s. A negative value leaves the matter to the transport.
	KeepAliveMinTime  time.Duration
	KeepAliveInterval time.Duration
	KeepAliveTimeout  time.Duration
}

// overhead is what a message may have on top of the largest request.
const overhead = 512 << 10

// MaxMessageBytes returns the largest message that a server with this Config.MaxRequestBytes receives.
func MaxMessageBytes(maxRequestBytes int) int { return maxRequestBytes + overhead }

// Validate reports every missing or invalid field.
func (c *Config) Validate() error {
	var errs []error
	if c.KV == nil {
		errs = append(errs, errors.New("KV is missing"))
	}
	if c.Member == nil {
		errs = append(errs, errors.New("Member is missing"))
	}
	if c.Hasher == nil {
		errs = append(errs, errors.New("Hasher is missing"))
	}
	if c.Alarms == nil {
		errs = append(errs, errors.New("Alarms is missing"))
	}
	if c.Auth != nil && c.WatchHub == nil {
		errs = append(errs, errors.New("WatchHub is missing"))
	}
	if c.NewWatchStream == nil {
		errs = append(errs, errors.New("NewWatchStream is missing"))
	}
	if c.MaxRequestBytes < 0 || c.MaxRequestBytes > math.MaxInt32-overhead {
		errs = append(errs, fmt.Errorf("MaxRequestBytes is %d", c.MaxRequestBytes))
	}
	if c.MaxTxnOps < 0 {
		errs = append(errs, fmt.Errorf("MaxTxnOps is %d", c.MaxTxnOps))
	}
	if c.ElectionTimeout <= 0 {
		errs = append(errs, fmt.Errorf("ElectionTimeout is %v", c.ElectionTimeout))
	}
	return errors.Join(errs...)
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	set(&c.MaxRequestBytes, kv.DefaultMaxRequestBytes)
	set(&c.MaxTxnOps, 128)
	set(&c.Ticking, time.Now())
	set(&c.MaxConcurrentStreams, math.MaxUint32)
	set(&c.WarnUnary, 300*time.Millisecond)
	set(&c.KeepAliveMinTime, 5*time.Second)
	set(&c.KeepAliveInterval, 2*time.Hour)
	set(&c.KeepAliveTimeout, 20*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(false)
	}
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
