package kvcmd

import (
	"io"
	"testing"

	"vigil/cmd/vigilctl/cli"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The answer to a request for progress may be older than a watch that was created before the answer
// arrived: it says nothing about the events of that watch.
func TestProgressBeforeWatch(t *testing.T) {
	w := newWatchStream(&cli.Env{Stdout: cli.NewOutput(io.Discard), Stderr: io.Discard,
		Format: "simple"})
	w.addWatch(watchRequest{create: &etcdserverpb.WatchCreateRequest{Key: []byte("k"),
		StartRevision: 3}})
	w.takeRequests()
	at := func(rev int64) *etcdserverpb.ResponseHeader { return &etcdserverpb.ResponseHeader{Revision: rev} }
	for _, step := range []struct {
		answer *etcdserverpb.WatchResponse
		resume int64
	}{
		{&etcdserverpb.WatchResponse{Header: at(10), WatchId: 1, Created: true}, 3},
		{&etcdserverpb.WatchResponse{Header: at(9), WatchId: broadcastID}, 3},
		{&etcdserverpb.WatchResponse{Header: at(10), WatchId: broadcastID}, 3},
		{&etcdserverpb.WatchResponse{Header: at(11), WatchId: broadcastID}, 12},
		{&etcdserverpb.WatchResponse{Header: at(13), WatchId: 1}, 14},
	} {
		if err := w.handleResponse(t.Context(), step.answer); err != nil {
			t.Fatal(err)
		}
		if got := w.mu.watches[0].create.StartRevision; got != step.resume {
			t.Errorf("after %v the watch resumes at %d, want %d", step.answer, got, step.resume)
		}
	}
}
