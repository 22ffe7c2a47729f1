package kvcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const leaseHelp = `A lease has a time to live. Keys that are put with a lease (put --lease ID) are deleted when the lease
expires: when it was not renewed for that time. IDs of leases are hexadecimal.`

// Lease returns the command lease with its subcommands.
func Lease(env *cli.Env) *cobra.Command {
	return command.Group("lease <subcommand>",
		"Manage leases, which give keys a time to live", leaseHelp,
		leaseGrant(env), leaseRevoke(env), leaseTimeToLive(env), leaseList(env),
		leaseKeepAlive(env))
}

func leaseGrant(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "grant <ttl>",
		Short:   "Grant a lease with a TTL in seconds",
		Example: "  vigilctl lease grant 60",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("lease grant command needs TTL argument")
			}
			ttl, err := command.Whole(args[0])
			if err != nil {
				if d, derr := time.ParseDuration(args[0]); derr == nil && d >= time.Second {
					return exit.Usage("bad TTL (%w): a TTL is a number of seconds, such as %d", err,
						int64(d/time.Second))
				}
				return exit.Usage("bad TTL (%w)", err)
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewLeaseClient(s.Conn).LeaseGrant(s.Ctx,
					&etcdserverpb.LeaseGrantRequest{TTL: ttl})
				if err != nil {
					err = fmt.Errorf("failed to grant lease (%w)", cli.CallError(err))
				}
				return show.Grant(r), err
			})
		},
	}
}

const leaseRevokeHelp = `Revoke a lease and delete its keys. On a terminal the command asks first if these are more than 100.`

// manyKeys is the number of keys from which on the revocation of a lease may surprise.
const manyKeys = 100

// revocationQuestion returns the question to ask before revoking a lease with many keys, "" for any
// other lease.
func revocationQuestion(s cli.Session, id int64) (string, error) {
	r, err := etcdserverpb.NewLeaseClient(s.Conn).LeaseTimeToLive(s.Ctx,
		&etcdserverpb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	if err != nil || len(r.GetKeys()) <= manyKeys {
		return "", nil // the revocation reports the reason
	}
	return fmt.Sprintf("This deletes the %d keys of lease %016x. Delete them?",
		len(r.GetKeys()), id), nil
}

func leaseRevoke(env *cli.Env) *cobra.Command {
	var yes cli.Yes
	c := &cobra.Command{
		Use:     "revoke <leaseID>",
		Short:   "Revoke a lease and delete its keys",
		Long:    leaseRevokeHelp,
		Example: "  vigilctl lease revoke 694d81417acd4754",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := leaseArg("revoke command needs 1 argument", args)
			if err != nil {
				return err
			}
			return env.CallAsking(c, yes, "nothing was revoked",
				func(s cli.Session) (string, error) { return revocationQuestion(s, id) },
				func(s cli.Session) (show.Answer, error) {
					r, err := etcdserverpb.NewLeaseClient(s.Conn).LeaseRevoke(s.Ctx,
						&etcdserverpb.LeaseRevokeRequest{ID: id})
					if err != nil {
						err = fmt.Errorf("failed to revoke lease (%w)", cli.CallError(err))
					}
					return show.Revoke(id, r), err
				})
		},
	}
	yes.AddFlag(c)
	return c
}

// inHex suggests the hexadecimal form of an ID that is written as a program writes numbers, or in
// decimal as -w json prints it. It returns "" for any other ID.
func inHex(id string) string {
	digits, prefixed := strings.CutPrefix(strings.ToLower(id), "0x")
	if _, err := command.Hex(digits); prefixed && err == nil {
		return "; without 0x: " + digits
	}
	if n, err := command.Whole(id); err == nil && n > 0 {
		return fmt.Sprintf("; in decimal it is the ID %016x", n)
	}
	return ""
}

func leaseTimeToLive(env *cli.Env) *cobra.Command {
	var keys bool
	c := &cobra.Command{
		Use:     "timetolive <leaseID> [options]",
		Short:   "Print the remaining time of a lease",
		Example: "  vigilctl lease timetolive 694d81417acd4754 --keys",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := leaseArg("timetolive command needs lease ID as argument", args)
			if err != nil {
				return err
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewLeaseClient(s.Conn).LeaseTimeToLive(s.Ctx,
					&etcdserverpb.LeaseTimeToLiveRequest{ID: id, Keys: keys})
				return show.TimeToLive(r, keys), asBadConnection(err)
			})
		},
	}
	c.Flags().BoolVar(&keys, "keys", false, "print its keys too")
	return c
}

func leaseList(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all leases",
		RunE: func(c *cobra.Command, _ []string) error {
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewLeaseClient(s.Conn).LeaseLeases(s.Ctx,
					&etcdserverpb.LeaseLeasesRequest{})
				return show.Leases(r), asBadConnection(err)
			})
		},
	}
}

const keepAliveHelp = `Renew a lease each time a third of its TTL has passed, until it expires, is revoked or the command is
interrupted. If a member fails, the command continues at another member.`

func leaseKeepAlive(env *cli.Env) *cobra.Command {
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
				return env.Call(c, func(s cli.Session) (show.Answer, error) {
					r, err := renew(s, id)
					if err == nil && r.GetTTL() <= 0 {
						err = errors.New("etcdserver: requested lease not found")
					}
					return show.KeepAlive(r), asBadConnection(err)
				})
			}
			return env.RunUntilInterrupted(c,
				func(s cli.Session) error { return renewUntilEnd(env, s, id) })
		},
	}
	c.Flags().BoolVar(&once, "once", false, "renew it once and return")
	return c
}

// leaseArg parses the only argument, the ID of a lease.
func leaseArg(want string, args []string) (int64, error) {
	if len(args) != 1 {
		return 0, exit.Usage("lease %s", want)
	}
	id, err := command.Hex(args[0])
	if err != nil {
		return 0, exit.Usage("bad lease ID arg (%w), expecting ID in Hex%s", err, inHex(args[0]))
	}
	return id, nil
}

// asBadConnection gives an error the exit code that etcdctl uses for all errors of some calls.
func asBadConnection(err error) error {
	if err == nil {
		return nil
	}
	return exit.With(exit.BadConnection, cli.CallError(err))
}

// renew renews a lease once.
func renew(s cli.Session, id int64) (*etcdserverpb.LeaseKeepAliveResponse, error) {
	ctx, cancel := context.WithCancel(s.Ctx)
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(s.Conn).LeaseKeepAlive(ctx)
	if err == nil {
		if err = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: id}); err == nil {
			return stream.Recv()
		}
	}
	return nil, err
}

// renewPause is how long to wait after a failed renewal.
const renewPause = 500 * time.Millisecond

// renewUntilEnd renews a lease until it ends.
func renewUntilEnd(env *cli.Env, s cli.Session, id int64) error {
	// The first answer tells the TTL. Until then the limit is the time to find a member.
	until, renewed := time.Now().Add(env.Timeout()), false
	for {
		one := s
		ctx, cancel := context.WithDeadline(s.Ctx, until)
		one.Ctx = ctx
		sent := time.Now()
		r, err := renew(one, id)
		cancel()
		wait := renewPause
		switch {
		case s.Ctx.Err() != nil:
			return exit.Silent(exit.Interrupted)
		case err != nil && cli.Permanent(err):
			return asBadConnection(err)
		case err != nil && time.Now().After(until) && !renewed:
			return asBadConnection(err) // the lease is unknown
		case err != nil && time.Now().After(until):
			return leaseEnded(env, id)
		case err != nil:
			fmt.Fprintf(env.Stderr, "cannot renew the lease, trying again: %v\n",
				cli.CallError(err))
		case r.GetTTL() <= 0:
			return leaseEnded(env, id)
		default:
			if err := env.Print(show.KeepAlive(r)); err != nil {
				return err
			}
			renewed = true
			ttl := command.Seconds(r.GetTTL())
			until, wait = sent.Add(ttl), max(ttl/3, renewPause)
		}
		select {
		case <-time.After(wait):
		case <-s.Ctx.Done():
			return exit.Silent(exit.Interrupted)
		}
	}
}

func leaseEnded(env *cli.Env, id int64) error {
	if env.Format == string(show.Simple) {
		fmt.Fprintf(env.Stdout, "lease %016x expired or revoked.\n", id)
	}
	return nil
}
