package server

import (
	"context"

	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// A member whose data is known to differ from the other members' data answers no requests for keys.
// The replica refuses reads and writes; the code here ends the watches and refuses new ones.

// newWatchStream makes the hub's side of a watch stream.
func (m *Member) newWatchStream(info watch.StreamInfo) watchapi.HubStream {
	if wrong, _ := m.replica.Untrusted(); wrong {
		return refusedStream{}
	}
	return m.replica.Hub().NewStream(info)
}

// refusedStream ends at once.
type refusedStream struct{}

func (refusedStream) Create(watch.CreateRequest) bool { return true }
func (refusedStream) Cancel(int64)                    {}
func (refusedStream) Progress()                       {}
func (refusedStream) Refuse(string)                   {}
func (refusedStream) Close()                          {}
func (refusedStream) Revoke(func(key, end []byte) string) {
}
func (refusedStream) NotifyReady(to *watch.Ready, owner any) { to.Add(owner) }
func (refusedStream) Take(dst []watch.Response, _ int64) ([]watch.Response, error) {
	return dst, kv.ErrCorrupt
}
func (refusedStream) Next(_ context.Context, dst []watch.Response) ([]watch.Response, error) {
	return dst, kv.ErrCorrupt
}

// watchTrust ends the watch streams when the member must no longer serve. Later streams check that
// when they begin.
func (m *Member) watchTrust(ctx context.Context) {
	for {
		wrong, changed := m.replica.Untrusted()
		if wrong {
			m.log.Error("the data of this member differ from those of the majority: it answers " +
				"no reads, writes and watches until the alarm is cleared or the member replaced")
			m.rpc.EndStreams(kv.ErrCorrupt)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
