package watch

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

// Options configures a Hub. The zero value of each field means its default.
type Options struct {
	// RingBytes bounds what is published and not matched yet. When it would be exceeded, all live
	// watchers turn behind. Default 16 MiB.
	RingBytes int64
	// StreamBytes bounds the queue of one stream. Default 4 MiB.
	StreamBytes int64
	// MemberBytes bounds all queues together. A stream may use its StreamBytes or one sixteenth of
	// what is free of MemberBytes, whichever is less, so that streams that nobody reads leave room
	// for the others. Default 32 MiB.
	MemberBytes int64
	// ResponseBytes and ResponseRevisions are the size up to which several revisions are merged
	// into one response. Defaults 256 KiB and 1000.
	ResponseBytes     int64
	ResponseRevisions int
	// FragmentBytes is the size above which a response is split for a watcher that asked for
	// fragments. Default 2 MiB.
	FragmentBytes int64
	// NextBytes bounds what one call of Stream.Next returns, give or take one response.
	// Default 512 KiB.
	NextBytes int64
	// After the matcher has queued many responses it waits for further events to share the next
	// ones: ResponseTime for each, default 6 µs, which is a few times what sending a small one takes
	// a core; at most GatherTime, default 8 ms. Less than a millisecond is not waited for.
	ResponseTime, GatherTime time.Duration
	// PendingAnswers is the number of unsent answers to Create, Cancel and Refuse on one stream at
	// which these calls begin to wait. Default 4096.
	PendingAnswers int
	// CatchUpWorkers is the number of goroutines that read history for watchers that are behind.
	// Default 2.
	CatchUpWorkers int
	// CatchUpBytes bounds what a worker reads from the Source at once, and delivers before others have
	// their turn at the processor. Default 256 KiB.
	CatchUpBytes int
	// CatchUpReadRate and CatchUpSendRate are the bytes a second that workers read and queue together
	// while there are writes, so that these find a free processor. Watchers less than CatchUpNear behind
	// are served without delay. Defaults 256 MiB, and 128 MiB for
	// each processor that Go may use.
	CatchUpReadRate, CatchUpSendRate int64
	// CatchUpScans is the number of positions in history that are read in turn; watchers behind
	// join the nearest of them. Default 32.
	CatchUpScans int
	// CatchUpNear is the number of revisions within which watchers share a scan in any case.
	// Default 4096.
	CatchUpNear int64
	// StreamWatchers is the number of watchers on one stream at which further creates are refused,
	// default 1,000,000, and StreamWatcherBytes bounds their memory: 400 bytes each and their keys,
	// default 512 MiB. Watchers that the hub canceled count until the client cancels them.
	StreamWatchers     int
	StreamWatcherBytes int64
	// ProgressInterval is the time after which a watcher that asked for it is told that there was
	// nothing to tell; up to a tenth is added at random, a stream at a time. At least 100 ms.
	// Default 10 minutes.
	ProgressInterval time.Duration
	// Logger receives what an operator should know. Default: nothing is logged.
	Logger *slog.Logger

	slice int // watchers or events that are dealt with before the hub's lock is let go; default 1024
}

const minProgressInterval = 100 * time.Millisecond

// EnsureDefaults returns o with the default in place of every zero.
func (o Options) EnsureDefaults() Options {
	or(&o.RingBytes, 16<<20)
	or(&o.StreamBytes, 4<<20)
	or(&o.MemberBytes, 32<<20)
	or(&o.ResponseBytes, 256<<10)
	or(&o.ResponseRevisions, 1000)
	or(&o.FragmentBytes, 2<<20)
	or(&o.NextBytes, 512<<10)
	or(&o.ResponseTime, 6*time.Microsecond)
	or(&o.GatherTime, 8*time.Millisecond)
	or(&o.PendingAnswers, 4096)
	or(&o.CatchUpWorkers, 2)
	or(&o.CatchUpBytes, 256<<10)
	or(&o.CatchUpReadRate, 256<<20)
	or(&o.CatchUpSendRate, int64(runtime.GOMAXPROCS(0))*(128<<20))
	or(&o.CatchUpScans, 32)
	or(&o.CatchUpNear, 4096)
	or(&o.StreamWatchers, 1_000_000)
	or(&o.StreamWatcherBytes, 512<<20)
	or(&o.slice, 1024)
	or(&o.ProgressInterval, 10*time.Minute)
	or(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
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
		errs = append(errs, fmt.Errorf("watch: ProgressInterval %v is below %v", o.ProgressInterval, minProgressInterval))
	}
	return errors.Join(errs...)
}
