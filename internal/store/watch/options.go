package watch

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// Options configures a Hub. The zero value of each field means its default; EnsureDefaults has the
// defaults.
type Options struct {
	// RingBytes bounds the published events that are not matched yet. If further events would
	// exceed it, all live watchers fall behind.
	RingBytes int64
	// StreamBytes bounds the queue of one stream.
	StreamBytes int64
	// MemberBytes bounds all queues together. A stream may use its StreamBytes or one sixteenth of
	// the free part of MemberBytes, whichever is less, so that streams whose clients do not read
	// leave room for the others.
	MemberBytes int64
	// ResponseBytes and ResponseRevisions are the size up to which the hub merges several revisions
	// into one response.
	ResponseBytes     int64
	ResponseRevisions int
	// FragmentBytes is the size above which the hub splits a response to a watcher that requested
	// fragments.
	FragmentBytes int64
	// NextBytes bounds the responses that one call of Stream.Next returns, give or take one
	// response.
	NextBytes int64
	// ResponseTime is how long the matcher waits for each response that it has queued, so that
	// further events share the next ones: a few times the processor time to send a small response.
	// GatherTime bounds one wait. The matcher does not wait for less than a millisecond.
	ResponseTime, GatherTime time.Duration
	// PendingAnswers is the number of unsent answers to Create, Cancel and Refuse on one stream at
	// which these calls start to wait.
	PendingAnswers int
	// CatchUpWorkers is the number of goroutines that read history for watchers that are behind.
	CatchUpWorkers int
	// CatchUpBytes bounds the events that a worker reads from the Source and delivers before it
	// yields the processor.
	CatchUpBytes int
	// CatchUpReadRate and CatchUpSendRate are the bytes per second that all workers together read
	// and queue while there are writes, so that writes find a free processor. Watchers less than
	// CatchUpNear behind are served without delay. The default of CatchUpSendRate grows with the
	// number of processors that Go may use.
	CatchUpReadRate, CatchUpSendRate int64
	// CatchUpScans is the number of positions in history that workers read in turn. Watchers behind
	// join the nearest of them.
	CatchUpScans int
	// CatchUpNear is the number of revisions within which watchers always share a scan.
	CatchUpNear int64
	// StreamWatchers is the number of watchers on one stream at which the hub rejects further
	// creates. StreamWatcherBytes bounds their memory: 400 bytes each and their keys. Watchers that
	// the hub canceled count until the client cancels them.
	StreamWatchers     int
	StreamWatcherBytes int64
	// ProgressInterval is how long a watcher that requested progress notifications may be idle
	// before it receives one; the hub adds up to a tenth at random, for each stream. At least 100
	// ms.
	ProgressInterval time.Duration
	// Logger receives messages for operators. By default nothing is logged.
	Logger *slog.Logger

	slice int // watchers or events to handle before releasing the hub's lock
}

const minProgressInterval = 100 * time.Millisecond

// EnsureDefaults returns o with every zero replaced with its default.
func (o Options) EnsureDefaults() Options {
	o.RingBytes = cmp.Or(o.RingBytes, 16<<20)
	o.StreamBytes = cmp.Or(o.StreamBytes, 4<<20)
	o.MemberBytes = cmp.Or(o.MemberBytes, 32<<20)
	o.ResponseBytes = cmp.Or(o.ResponseBytes, 256<<10)
	o.ResponseRevisions = cmp.Or(o.ResponseRevisions, 1000)
	o.FragmentBytes = cmp.Or(o.FragmentBytes, 2<<20)
	o.NextBytes = cmp.Or(o.NextBytes, 512<<10)
	o.ResponseTime = cmp.Or(o.ResponseTime, 6*time.Microsecond)
	o.GatherTime = cmp.Or(o.GatherTime, 8*time.Millisecond)
	o.PendingAnswers = cmp.Or(o.PendingAnswers, 4096)
	o.CatchUpWorkers = cmp.Or(o.CatchUpWorkers, 2)
	o.CatchUpBytes = cmp.Or(o.CatchUpBytes, 256<<10)
	o.CatchUpReadRate = cmp.Or(o.CatchUpReadRate, 256<<20)
	o.CatchUpSendRate = cmp.Or(o.CatchUpSendRate, int64(runtime.GOMAXPROCS(0))*(128<<20))
	o.CatchUpScans = cmp.Or(o.CatchUpScans, 32)
	o.CatchUpNear = cmp.Or(o.CatchUpNear, 4096)
	o.StreamWatchers = cmp.Or(o.StreamWatchers, 1_000_000)
	o.StreamWatcherBytes = cmp.Or(o.StreamWatcherBytes, 512<<20)
	o.slice = cmp.Or(o.slice, 1024)
	o.ProgressInterval = cmp.Or(o.ProgressInterval, 10*time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// Validate names every field that is out of range.
func (o Options) Validate() error {
	o = o.EnsureDefaults()
	var errs []error
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"RingBytes", o.RingBytes},
		{"StreamBytes", o.StreamBytes},
		{"MemberBytes", o.MemberBytes},
		{"ResponseBytes", o.ResponseBytes},
		{"ResponseRevisions", int64(o.ResponseRevisions)},
		{"FragmentBytes", o.FragmentBytes},
		{"NextBytes", o.NextBytes},
		{"PendingAnswers", int64(o.PendingAnswers)},
		{"CatchUpWorkers", int64(o.CatchUpWorkers)},
		{"CatchUpBytes", int64(o.CatchUpBytes)},
		{"CatchUpReadRate", o.CatchUpReadRate},
		{"CatchUpSendRate", o.CatchUpSendRate},
		{"CatchUpScans", int64(o.CatchUpScans)},
		{"CatchUpNear", o.CatchUpNear},
		{"StreamWatchers", int64(o.StreamWatchers)},
		{"StreamWatcherBytes", o.StreamWatcherBytes},
		{"ResponseTime", int64(o.ResponseTime)},
		{"GatherTime", int64(o.GatherTime)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("watch: %s is negative: %d", f.name, f.value))
		}
	}
	if o.ProgressInterval < minProgressInterval {
		errs = append(errs, fmt.Errorf("watch: ProgressInterval %v is below %v", o.ProgressInterval,
			minProgressInterval))
	}
	return errors.Join(errs...)
}
