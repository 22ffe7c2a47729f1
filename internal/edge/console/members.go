package console

import (
	"context"
	"io"
	"net/http"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// memberChange is an action on a member or on the store.
type memberChange struct {
	Do       string
	ID       string
	URLs     []string
	Learner  bool
	Revision int64
	Alarm    string
}

// serveMemberChange runs an action. The API checks the user's permission.
func (c *Console) serveMemberChange(r *request) (any, error) {
	var in memberChange
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	var n uint64
	if in.ID != "" {
		var err error
		if n, err = id("member", in.ID); err != nil {
			return nil, err
		}
	}
	act := actions[in.Do]
	if act == nil {
		return nil, badRequest("no action is called %q", in.Do)
	}
	return act(c, r.ctx, n, &in)
}

// addedMember is the answer to adding a member: its ID, and the other members for its
// --initial-cluster.
type addedMember struct {
	ID      string   `json:"id"`
	Cluster []string `json:"cluster"`
}

var actions = map[string]func(c *Console, ctx context.Context, id uint64,
	in *memberChange) (any, error){
	"add": func(c *Console, ctx context.Context, _ uint64, in *memberChange) (any, error) {
		res, err := c.cluster.MemberAdd(ctx,
			&etcdserverpb.MemberAddRequest{PeerURLs: in.URLs, IsLearner: in.Learner})
		if err != nil {
			return nil, err
		}
		out := addedMember{ID: hexadecimal(res.Member.ID)}
		for _, m := range res.Members {
			for _, u := range m.PeerURLs {
				if m.ID != res.Member.ID && m.Name != "" {
					out.Cluster = append(out.Cluster, m.Name+"="+u)
				}
			}
		}
		return out, nil
	},
	"remove": func(c *Console, ctx context.Context, id uint64, _ *memberChange) (any, error) {
		return done(c.cluster.MemberRemove(ctx, &etcdserverpb.MemberRemoveRequest{ID: id}))
	},
	"promote": func(c *Console, ctx context.Context, id uint64, _ *memberChange) (any, error) {
		return done(c.cluster.MemberPromote(ctx, &etcdserverpb.MemberPromoteRequest{ID: id}))
	},
	"move-leader": func(c *Console, ctx context.Context, id uint64, _ *memberChange) (any, error) {
		return done(c.maintenance.MoveLeader(ctx, &etcdserverpb.MoveLeaderRequest{TargetID: id}))
	},
	"defragment": func(c *Console, ctx context.Context, _ uint64, _ *memberChange) (any, error) {
		return done(c.maintenance.Defragment(ctx, &etcdserverpb.DefragmentRequest{}))
	},
	"compact": func(c *Console, ctx context.Context, _ uint64, in *memberChange) (any, error) {
		if in.Revision < 1 {
			return nil, badRequest("the revision %d is less than 1", in.Revision)
		}
		return done(c.kv.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: in.Revision}))
	},
	"disarm": func(c *Console, ctx context.Context, id uint64, in *memberChange) (any, error) {
		kind, ok := etcdserverpb.AlarmType_value[in.Alarm]
		if !ok || kind == 0 {
			return nil, badRequest("no alarm is called %q", in.Alarm)
		}
		return done(c.maintenance.Alarm(ctx,
			&etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: id,
				Alarm: etcdserverpb.AlarmType(kind)}))
	},
}

// done drops an answer without content.
func done[T any](_ T, err error) (any, error) { return struct{}{}, err }

// serveSnapshot streams a snapshot of the store as an etcd file.
func (c *Console) serveSnapshot(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // an expired read deadline would end the request
	// The server sends the end of the response after the handler has returned.
	defer func() { _ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) }()
	q := c.request(ctx, cancel, r)
	st, err := c.maintenance.Snapshot(q.ctx, &etcdserverpb.SnapshotRequest{})
	for first := true; err == nil; first = false {
		var part *etcdserverpb.SnapshotResponse
		if part, err = st.Recv(); err != nil {
			if err != io.EOF && !first {
				// The length is unknown at the start: breaking the connection is the only way to
				// report the error.
				panic(http.ErrAbortHandler)
			}
			break
		}
		if first {
			w.Header().Set("Content-Type", "application/octet-stream")
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err = w.Write(part.Blob); err != nil {
			return
		}
		_ = control.SetWriteDeadline(time.Time{})
	}
	if err != nil && err != io.EOF {
		writeError(w, err)
	}
}
