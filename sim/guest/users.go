//go:build wasip1

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	"vigil/client"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

const (
	// rootUser is the user of all clients but those of the work on users, and its password too.
	rootUser = "root"
	// slots is the number of users at a time, each of which has a few workers and keys of its own.
	slots       = 2
	slotWorkers = 3
)

// withUsers is set in processes of a cluster whose clients must authenticate.
var withUsers bool

// enableAuth enables the authentication of users, before anything else happens; each request is
// repeated until its effect is certain.
func enableAuth(c *setup.Client) error {
	cl, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	defer cl.Close()
	certain := func(do func(context.Context) error, before ...error) {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
			err := do(ctx)
			cancel()
			if err == nil {
				return
			}
			for _, b := range before {
				if errors.Is(err, b) {
					return
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if c.First == 0 {
		certain(func(ctx context.Context) error {
			_, err := cl.Auth().UserAdd(ctx, rootUser, rootUser)
			return err
		}, client.ErrUserExists)
		certain(func(ctx context.Context) error {
			_, err := cl.Auth().RoleAdd(ctx, rootUser)
			return err
		}, client.ErrRoleExists)
		certain(func(ctx context.Context) error {
			_, err := cl.Auth().UserGrantRole(ctx, rootUser, rootUser)
			return err
		})
		certain(func(ctx context.Context) error {
			_, err := cl.Auth().Enable(ctx)
			return err
		})
	}
	certain(func(ctx context.Context) error {
		_, err := cl.Auth().Authenticate(ctx, rootUser, rootUser)
		return err
	})
	return nil
}

// authenticated returns the context of a call without the library, with a token if users must
// authenticate.
func authenticated(ctx context.Context, c etcdserverpb.AuthClient) (context.Context, error) {
	if !withUsers {
		return ctx, nil
	}
	r, err := c.Authenticate(ctx,
		&etcdserverpb.AuthenticateRequest{Name: rootUser, Password: rootUser})
	return metadata.AppendToOutgoingContext(ctx, "token", r.GetToken()), err
}

// users changes users, roles and permissions while the users write and read. No user must ever do
// what it certainly has no permission for.
func users(c *setup.Client, rng *rand.Rand) error {
	root, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	for n := range slots {
		s := &slot{c: c, root: root, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), id: c.First + n,
			key: fmt.Sprintf("u/%d", c.First+n)}
		working.Go(func() {
			for goesOn(c, c.Stop) {
				s.generation++
				s.live()
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
			}
		})
	}
	working.Wait()
	return nil
}

// slot has one user at a time. When the effect of a change is uncertain, the user is left alone and
// another one follows: the request may have its effect at any later time.
type slot struct {
	c          *setup.Client
	root       *client.Client
	rng        *rand.Rand
	id         int
	generation int
	key        string
	writes     int

	name string // of the user and of its role
	// since is when the present permission was certain, and sinceRev a revision that is not before
	// it.
	since    time.Duration
	sinceRev int64
	allowed  bool
}

// change makes a change of the user, and reports whether its effect is certain. The present
// permission is certain until the change.
func (s *slot) change(do func(context.Context) (client.Header, error), allows bool) bool {
	span := check.PermitSpan{User: s.name, Allowed: s.allowed, From: s.since,
		FromRev: s.sinceRev, To: now()}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	h, err := do(ctx)
	cancel()
	report(setup.Report{Permit: &span})
	s.since, s.sinceRev, s.allowed = now(), h.Revision, allows
	return err == nil
}

// live creates a user, and changes what it may do until a change is uncertain, or the user is
// deleted.
func (s *slot) live() {
	s.name = fmt.Sprintf("user-%d-%d", s.id, s.generation)
	s.since, s.sinceRev, s.allowed = now(), 0, false
	made := s.change(func(ctx context.Context) (client.Header, error) {
		return s.root.Auth().RoleAdd(ctx, s.name)
	}, false) && s.change(func(ctx context.Context) (client.Header, error) {
		return s.root.Auth().UserAdd(ctx, s.name, s.name)
	}, false) && s.change(func(ctx context.Context) (client.Header, error) {
		return s.root.Auth().UserGrantRole(ctx, s.name, s.name)
	}, false)
	if !made {
		return
	}
	over := make(chan struct{})
	var working sync.WaitGroup
	for n := range slotWorkers {
		cl, err := connectAs(s.name, s.c.Endpoints...)
		if err != nil {
			report(setup.Report{Failed: err.Error()})
			return
		}
		w := &userWorker{Client: cl, slot: s, id: n, user: s.name,
			rng: rand.New(rand.NewPCG(s.rng.Uint64(), 0)), over: over}
		working.Go(w.work)
	}
	working.Go(func() { s.watch(over) })
	working.Go(func() { s.write(rand.New(rand.NewPCG(s.rng.Uint64(), 1)), over) })
	for s.vary() && int64(now()) < s.c.Stop {
	}
	time.Sleep(time.Duration(s.rng.Int64N(int64(time.Second))))
	close(over)
	working.Wait()
}

// vary gives the user a permission and takes it away, and reports whether the user goes on.
func (s *slot) vary() bool {
	pause := func() {
		rest(s.c)
		time.Sleep(time.Duration(s.rng.Int64N(int64(2 * time.Second))))
	}
	pause()
	if !s.change(func(ctx context.Context) (client.Header, error) {
		return s.root.Auth().RoleGrantPermission(ctx, s.name,
			client.Permission{Type: client.PermissionReadWrite, Key: s.key})
	}, true) {
		return false
	}
	pause()
	switch s.rng.IntN(4) {
	case 0: // by the role of the user
		if !s.change(func(ctx context.Context) (client.Header, error) {
			return s.root.Auth().UserRevokeRole(ctx, s.name, s.name)
		}, false) {
			return false
		}
		pause()
		return s.change(func(ctx context.Context) (client.Header, error) {
			return s.root.Auth().UserGrantRole(ctx, s.name, s.name)
		}, true)
	case 1: // by the end of the role, or of the user
		s.end()
		return false
	}
	return s.change(func(ctx context.Context) (client.Header, error) {
		return s.root.Auth().RoleRevokePermission(ctx, s.name, s.key, "")
	}, false)
}

// end deletes the role or the user, whose name is never used again.
func (s *slot) end() {
	ok := s.change(func(ctx context.Context) (client.Header, error) {
		if s.rng.IntN(2) == 0 {
			return s.root.Auth().RoleDelete(ctx, s.name)
		}
		return s.root.Auth().UserDelete(ctx, s.name)
	}, false)
	if ok {
		report(setup.Report{Permit: &check.PermitSpan{User: s.name, From: s.since,
			FromRev: s.sinceRev, To: 1 << 62}})
	}
}

// userWorker writes and reads as a user of a slot.
type userWorker struct {
	*client.Client
	slot  *slot
	id    int
	user  string
	rng   *rand.Rand
	over  chan struct{}
	wrote int
}

func (w *userWorker) work() {
	defer w.Close()
	for {
		select {
		case <-w.over:
			return
		case <-time.After(time.Duration(w.rng.Int64N(int64(300 * time.Millisecond)))):
		}
		rest(w.slot.c)
		w.access()
	}
}

// access makes an operation and reports it.
func (w *userWorker) access() {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	o := check.Access{User: w.user, Call: now()}
	var err error
	if w.rng.IntN(3) == 0 {
		_, err = w.Get(ctx, w.slot.key)
	} else {
		w.wrote++
		o.Value = fmt.Sprintf("%s-%d-%d", w.user, w.id, w.wrote)
		_, err = w.Put(ctx, w.slot.key, []byte(o.Value))
	}
	o.Ret = now()
	switch {
	case err == nil:
		o.Outcome = check.Acked
	case errors.Is(err, client.ErrPermissionDenied):
		o.Outcome = check.Refused
	default:
		o.Outcome, o.Err = check.Unknown, err.Error()
	}
	report(setup.Report{Access: &o})
}
