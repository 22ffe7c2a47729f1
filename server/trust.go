package server

import (
	"context"

	"vigil/internal/edge/rpc/watchapi"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// A member whose data are known to differ from those of the others answers no question about keys:
// the replica refuses reads and writes, and what is here ends watches and lets none begin.

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

// watchTrust ends the watch streams when the member must not serve any more. Those that begin later
// find out by themselves.
func (m *Member) watchTrust(ctx context.Context) {
	for {
		wrong, changed := m.replica.Untrusted()
		if wrong {
			m.log.Error("the data of this member differ from those of the majority: it answers no reads, writes and watches until the alarm is cleared or the member replaced")
			m.rpc.EndStreams(kv.ErrCorrupt)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
