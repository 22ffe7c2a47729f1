package watch

import "errors"

// ErrClosed is returned by Stream.Next when the stream or its hub is closed.
var ErrClosed = errors.New("watch: stream closed")

// InvalidID is the watch id of answers about no particular watcher: rejected creates and progress
// of a whole stream.
const InvalidID int64 = -1

// The reasons of the hub for refusing or canceling; clients match on the text.
const (
	ReasonEmptyRange  = "mvcc: watcher range is empty"
	ReasonDuplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
	ReasonCompacted   = "etcdserver: mvcc: required revision has been compacted"
	// ReasonHistory: the hub could not read the watcher's events. The text is the error of calls to
	// a member with damaged data; other members may have the events. The log has the error.
	ReasonHistory = "etcdserver: corrupt cluster"
	// ReasonTooMany, ReasonTooLarge: see Options.StreamWatchers. The reason continues with the
	// limit and what to do.
	ReasonTooMany  = "watch: too many watchers on the stream"
	ReasonTooLarge = "watch: the watchers of the stream take too much memory"
)

// StreamInfo describes the client of a stream, for Stats.
type StreamInfo struct {
	Client string // address
	User   string // empty without authentication
}

// CreateRequest requests a watcher. The hub copies what it keeps.
type CreateRequest struct {
	// ID is the watch id, unique on its stream; 0 lets the hub choose.
	ID int64
	// Key and End are the range as the API gives it: an empty Key is the smallest key, an empty End
	// means the single Key, an End of one zero byte every key from Key on.
	Key, End []byte
	// StartRev is the first revision to watch, which may be in the future; 0 means all after the
	// revision of the created response.
	StartRev int64
	// NoPut and NoDelete leave out puts and deletions.
	NoPut, NoDelete bool
	// PrevKV requests the key-value pair before each event.
	PrevKV bool
	// ProgressNotify requests a notification after a time without events.
	ProgressNotify bool
	// Fragment allows the hub to split the events of one revision into several responses.
	Fragment bool
	// Withheld is the result of Hub.Withheld before the caller checked the right of the client.
	Withheld int64
}

// Response is one message to the client.
type Response struct {
	WatchID int64
	// Also lists further watchers of the stream that get the same response. Only Take combines such
	// responses. The slice is shared and immutable.
	Also []int64
	// Revision is the revision for the header. In a progress notification it means that all events
	// of the watcher up to it are queued before. With events it is not below the last event and
	// promises nothing more: a watcher that is behind gets the newest revision of the store, from
	// which clients compute how far they are behind. It is 0 for a watcher that is canceled because
	// of a compaction.
	Revision int64
	// CompactRevision is set if the watcher is canceled because it needs an older revision.
	CompactRevision int64
	// Created answers a create request; with Canceled it was rejected.
	Created, Canceled bool
	// Fragment says that more events of the same revision follow in the next response of the
	// watcher.
	Fragment bool
	// Reason says why the hub rejected or canceled the watcher; it is empty if the client canceled
	// it.
	Reason string
	// Events are encoded mvccpb.Event messages in the order of history. They are shared and
	// immutable.
	Events [][]byte
}

// each appends to dst the response of each watcher.
func (r *Response) each(dst []Response) []Response {
	one := *r
	one.Also = nil
	dst = append(dst, one)
	for _, one.WatchID = range r.Also {
		dst = append(dst, one)
	}
	return dst
}
