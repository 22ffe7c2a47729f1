package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/cmd/vigilctl/show"
)

func (a *app) endpointCommand() *cobra.Command {
	var cluster bool
	c := group("endpoint <subcommand>", "Ask each member how it is", "Ask each of --endpoints, or with --cluster each member, how it is.",
		a.endpointHealthCommand(&cluster), a.endpointStatusCommand(&cluster), a.endpointHashKVCommand(&cluster))
	c.PersistentFlags().BoolVar(&cluster, "cluster", false, clusterUsage)
	return c
}

const clusterUsage = "use the client URLs of all members that one of --endpoints knows"

func clusterFlag(c *cobra.Command, to *bool) { c.Flags().BoolVar(to, "cluster", false, clusterUsage) }

// targets returns the endpoints to ask one by one.
func (a *app) targets(c *cobra.Command, cl *client.Client, cluster bool) ([]string, error) {
	if !cluster {
		return a.cfg.Endpoints, nil
	}
	ctx, cancel := a.short(c)
	defer cancel()
	r, err := cl.MemberList(ctx)
	if err != nil {
		return nil, &exit{exitFailure, fmt.Errorf("failed to fetch endpoints from etcd cluster member list: %w", failed(err))}
	}
	var urls []string
	for _, m := range r.GetMembers() {
		urls = append(urls, m.GetClientURLs()...)
	}
	return urls, nil
}

// each runs a short command at one endpoint after the other, up to an error.
func (a *app) each(c *cobra.Command, cluster bool, run func(endpoint string, s session) error) error {
	cl, err := a.connect(c.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	targets, err := a.targets(c, cl, cluster)
	for _, ep := range targets {
		if err == nil {
			err = a.at(c, cl, ep, run)
		}
	}
	return failed(err)
}

func (a *app) at(c *cobra.Command, cl *client.Client, ep string, run func(endpoint string, s session) error) error {
	one, err := cl.At(ep)
	if err != nil {
		return &exit{exitBadConnection, err}
	}
	ctx, cancel := a.short(c)
	defer cancel()
	return run(ep, session{ctx, one, one.Conn()})
}

const healthHelp = `Read a key through each endpoint, which needs a leader and a quorum, and look for alarms.

Exit codes: 0 all are healthy, 1 one is not.`

func (a *app) endpointHealthCommand(cluster *bool) *cobra.Command {
	return &cobra.Command{
		Use:     "health",
		Short:   "Tell whether members serve",
		Long:    healthHelp,
		Example: "  vigilctl endpoint health --cluster -w table",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.open(c.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			targets, err := a.targets(c, cl, *cluster)
			if err != nil {
				return err
			}
			list := make([]show.Health, len(targets))
			var all sync.WaitGroup
			for i, ep := range targets {
				list[i] = show.Health{Endpoint: ep}
				all.Go(func() {
					err := a.at(c, cl, ep, func(_ string, s session) error { return checkHealth(s, &list[i]) })
					if list[i].Health = err == nil; err != nil {
						list[i].Error = failed(err).Error()
					}
				})
			}
			all.Wait()
			return a.printHealth(list)
		},
	}
}

// checkHealth asks a member for a key and for alarms.
func checkHealth(s session, h *show.Health) error {
	began := time.Now()
	_, err := etcdserverpb.NewKVClient(s.conn).Range(s.ctx, &etcdserverpb.RangeRequest{Key: []byte("health")})
	h.Took = time.Since(began).String()
	// Who may not read it was told so after agreement with the others.
	if err != nil && status.Convert(err).Message() != client.ErrPermissionDenied.Error() {
		return err
	}
	r, err := etcdserverpb.NewMaintenanceClient(s.conn).Alarm(s.ctx, &etcdserverpb.AlarmRequest{})
	if err != nil {
		return errors.New("Unable to fetch the alarm list") //nolint:staticcheck // etcdctl's words
	}
	if len(r.GetAlarms()) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("Active Alarm(s): ")
	for _, m := range r.GetAlarms() {
		switch m.GetAlarm() {
		case etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT:
			b.WriteString(m.GetAlarm().String() + " ")
		default:
			b.WriteString("UNKNOWN ")
		}
	}
	return errors.New(b.String())
}

func (a *app) printHealth(list []show.Health) error {
	if err := a.print(show.EndpointHealth(list)); err != nil {
		return err
	}
	ill := false
	for _, h := range list {
		if h.Error == "" {
			continue
		}
		ill = true
		if a.format == string(show.Simple) {
			fmt.Fprintf(a.errOut, "%s is unhealthy: failed to commit proposal: %s\n", h.Endpoint, h.Error)
		}
	}
	if ill {
		return &exit{exitFailure, errors.New("unhealthy cluster")}
	}
	return nil
}

const statusHelp = `Ask each endpoint for its version, size, place in the cluster and alarms. With -w simple there is a line
for each; -w table has the names of the columns.`

func (a *app) endpointStatusCommand(cluster *bool) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Tell version, size, leader and alarms of members",
		Long:    statusHelp,
		Example: "  vigilctl endpoint status --cluster -w table",
		RunE: func(c *cobra.Command, _ []string) error {
			var list []show.Status
			err := collect(a, c, *cluster, "status", &list, func(ep string, s session) (show.Status, error) {
				r, err := etcdserverpb.NewMaintenanceClient(s.conn).Status(s.ctx, &etcdserverpb.StatusRequest{})
				return show.Status{Endpoint: ep, Status: r}, err
			})
			return a.printThen(show.EndpointStatus(list), quiet(err))
		},
	}
}

const endpointHashHelp = `Ask each endpoint for the hash of its keys with their history. Members that have the same compact
revision must have the same hash of the same revision.`

func (a *app) endpointHashKVCommand(cluster *bool) *cobra.Command {
	var rev int64
	c := &cobra.Command{
		Use:     "hashkv",
		Short:   "Tell the hash of what members store",
		Long:    endpointHashHelp,
		Example: "  vigilctl endpoint hashkv --cluster --rev 4200",
		RunE: func(c *cobra.Command, _ []string) error {
			var list []show.HashKV
			err := collect(a, c, *cluster, "hash", &list, func(ep string, s session) (show.HashKV, error) {
				r, err := etcdserverpb.NewMaintenanceClient(s.conn).HashKV(s.ctx, &etcdserverpb.HashKVRequest{Revision: rev})
				return show.HashKV{Endpoint: ep, HashKV: r}, err
			})
			return a.printThen(show.EndpointHashKV(list), err)
		},
	}
	c.Flags().Int64Var(&rev, "rev", 0, "the last revision to hash; 0 is the newest")
	return c
}

// collect asks each endpoint and returns the last error, when all have been asked.
func collect[T any](a *app, c *cobra.Command, cluster bool, what string, list *[]T, ask func(ep string, s session) (T, error)) error {
	var last error
	err := a.each(c, cluster, func(ep string, s session) error {
		v, err := ask(ep, s)
		if err != nil {
			last = failed(err)
			fmt.Fprintf(a.errOut, "Failed to get the %s of endpoint %s (%v)\n", what, ep, last)
			return nil
		}
		*list = append(*list, v)
		return nil
	})
	if err != nil {
		return &exit{code(err), err}
	}
	return last
}

// quiet is an exit code without words: they were said before.
func quiet(err error) error {
	var e *exit
	if errors.As(err, &e) && e.code == exitFailure {
		return &exit{code: exitFailure}
	}
	return err
}

// code returns the exit code of an error.
func code(err error) int {
	var e *exit
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailure
}

// printThen prints an answer and returns err.
func (a *app) printThen(answer show.Answer, err error) error {
	if e := a.print(answer); e != nil {
		return e
	}
	return err
}
