package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/show"
)

const leaseHelp = `A lease is a time to live. Keys that are put with one (put --lease ID) are deleted when nobody has
kept it alive for that time. Ids of leases are hexadecimal.`

func (a *app) leaseCommand() *cobra.Command {
	return group("lease <subcommand>", "Give keys a time to live", leaseHelp,
		a.leaseGrantCommand(), a.leaseRevokeCommand(), a.leaseTimeToLiveCommand(), a.leaseListCommand(), a.leaseKeepAliveCommand())
}

func (a *app) leaseGrantCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "grant <ttl>",
		Short:   "Make a lease of so many seconds",
		Example: "  vigilctl lease grant 60",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("lease grant command needs TTL argument")
			}
			ttl, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return badArgs("bad TTL (%w)", err)
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewLeaseClient(s.conn).LeaseGrant(s.ctx, &etcdserverpb.LeaseGrantRequest{TTL: ttl})
				if err != nil {
					err = fmt.Errorf("failed to grant lease (%w)", failed(err))
				}
				return show.Grant(r), err
			})
		},
	}
}

func (a *app) leaseRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke <leaseID>",
		Short:   "End a lease and delete its keys",
		Example: "  vigilctl lease revoke 694d81417acd4754",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := leaseArg("revoke command needs 1 argument", args)
			if err != nil {
				return err
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewLeaseClient(s.conn).LeaseRevoke(s.ctx, &etcdserverpb.LeaseRevokeRequest{ID: id})
				if err != nil {
					err = fmt.Errorf("failed to revoke lease (%w)", failed(err))
				}
				return show.Revoke(id, r), err
			})
		},
	}
}

func (a *app) leaseTimeToLiveCommand() *cobra.Command {
	var keys bool
	c := &cobra.Command{
		Use:     "timetolive <leaseID> [options]",
		Short:   "Tell what is left of a lease",
		Example: "  vigilctl lease timetolive 694d81417acd4754 --keys",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := leaseArg("timetolive command needs lease ID as argument", args)
			if err != nil {
				return err
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewLeaseClient(s.conn).LeaseTimeToLive(s.ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: id, Keys: keys})
				return show.TimeToLive(r, keys), unconnected(err)
			})
		},
	}
	c.Flags().BoolVar(&keys, "keys", false, "tell its keys, too")
	return c
}

func (a *app) leaseListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all leases",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewLeaseClient(s.conn).LeaseLeases(s.ctx, &etcdserverpb.LeaseLeasesRequest{})
				return show.Leases(r), unconnected(err)
			})
		},
	}
}

const keepAliveHelp = `Renew a lease a third of its time after it was renewed last, until it has ended or the command is
interrupted. When a member is lost it goes on at another one.`

func (a *app) leaseKeepAliveCommand() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:     "keep-alive [options] <leaseID>",
		Short:   "Renew a lease",
		Long:    keepAliveHelp,
		Example: "  vigilctl lease keep-alive 694d81417acd4754\n  vigilctl lease keep-alive --once 694d81417acd4754",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := leaseArg("keep-alive command needs lease ID as argument", args)
			if err != nil {
				return err
			}
			if once {
				return a.call(c, func(s session) (show.Answer, error) {
					r, err := renew(s, id)
					if err == nil && r.GetTTL() <= 0 {
						err = errors.New("etcdserver: requested lease not found")
					}
					return show.KeepAlive(r), unconnected(err)
				})
			}
			return a.during(c, func(s session) error { return a.renewing(s, id) })
		},
	}
	c.Flags().BoolVar(&once, "once", false, "renew it once and return")
	return c
}

// leaseArg reads the id of a lease, the only argument.
func leaseArg(want string, args []string) (int64, error) {
	if len(args) != 1 {
		return 0, badArgs("lease %s", want)
	}
	id, err := strconv.ParseInt(args[0], 16, 64)
	if err != nil {
		return 0, badArgs("bad lease ID arg (%w), expecting ID in Hex", err)
	}
	return id, nil
}

// unconnected gives an error the exit code that etcdctl has for all that may go wrong with some calls.
func unconnected(err error) error {
	if err == nil {
		return nil
	}
	return &exit{exitBadConnection, failed(err)}
}

// renew renews a lease once.
func renew(s session, id int64) (*etcdserverpb.LeaseKeepAliveResponse, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(s.conn).LeaseKeepAlive(ctx)
	if err == nil {
		if err = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: id}); err == nil {
			return stream.Recv()
		}
	}
	return nil, err
}

// renewPause is how long to wait after a renewal that failed.
const renewPause = 500 * time.Millisecond

// renewing renews a lease until it has ended.
func (a *app) renewing(s session, id int64) error {
	// What the lease has at least is known after the first answer; until then there is time to find a member.
	until := time.Now().Add(a.commandTimeout + a.cfg.DialTimeout)
	for {
		one := s
		ctx, cancel := context.WithDeadline(s.ctx, until)
		one.ctx = ctx
		sent := time.Now()
		r, err := renew(one, id)
		cancel()
		wait := renewPause
		switch {
		case s.ctx.Err() != nil:
			return &exit{code: exitInterrupted}
		case err != nil && final(err):
			return unconnected(err)
		case err != nil && time.Now().After(until):
			return a.leaseEnded(id)
		case err != nil:
			fmt.Fprintf(a.errOut, "cannot renew the lease, trying again: %v\n", failed(err))
		case r.GetTTL() <= 0:
			return a.leaseEnded(id)
		default:
			if err := a.print(show.KeepAlive(r)); err != nil {
				return err
			}
			until = sent.Add(time.Duration(r.GetTTL()) * time.Second)
			wait = max(time.Duration(r.GetTTL())*time.Second/3, renewPause)
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return &exit{code: exitInterrupted}
		}
	}
}

// final reports whether it makes no sense to try again.
func final(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return false
}

func (a *app) leaseEnded(id int64) error {
	if a.format == string(show.Simple) {
		fmt.Fprintf(a.out, "lease %016x expired or revoked.\n", id)
	}
	return nil
}
