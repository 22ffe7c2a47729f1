// Package clustercmd has the commands for members: member, endpoint, alarm, defrag, move-leader,
// downgrade and snapshot save.
package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

// Endpoint returns the command endpoint with its subcommands.
func Endpoint(env *cli.Env) *cobra.Command {
	var cluster bool
	c := command.Group("endpoint <subcommand>", "Query the state of each member",
		"Query the state of each of --endpoints, or with --cluster of each member.",
		endpointHealth(env, &cluster), endpointStatus(env, &cluster), endpointHashKV(env, &cluster))
	c.PersistentFlags().BoolVar(&cluster, "cluster", false, clusterUsage)
	return c
}

const clusterUsage = "use the client URLs of all members in the member list"

func addClusterFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "cluster", false, clusterUsage)
}

// targets returns the endpoints to query one by one.
func targets(env *cli.Env, c *cobra.Command, cl *client.Client, cluster bool) ([]string, error) {
	if !cluster {
		return env.Config.Endpoints, nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), env.Timeout())
	defer cancel()
	r, err := cl.Cluster().MemberList(ctx)
	if err != nil {
		return nil, exit.With(exit.Failure,
			fmt.Errorf("failed to fetch endpoints from etcd cluster member list: %w",
				cli.CallError(err)))
	}
	var urls []string
	for _, m := range r.Members {
		urls = append(urls, m.ClientURLs...)
	}
	return urls, nil
}

// forEach runs a short command at one endpoint after the other, up to the first error.
func forEach(env *cli.Env, c *cobra.Command, cluster bool,
	run func(endpoint string, s cli.Session) error) error {
	cl, err := env.Connect(c.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	targets, err := targets(env, c, cl, cluster)
	for _, ep := range targets {
		if err == nil {
			err = runAt(env, c, cl, ep, run)
		}
	}
	return cli.CallError(err)
}

// runAt runs a short command at one endpoint.
func runAt(env *cli.Env, c *cobra.Command, cl *client.Client, ep string,
	run func(endpoint string, s cli.Session) error) error {
	one, err := cl.At(ep)
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	ctx, cancel := context.WithTimeout(c.Context(), env.Timeout())
	defer cancel()
	return run(ep, cli.Session{Ctx: ctx, Client: one, Conn: one.Conn()})
}

const healthHelp = `Read a key through each endpoint, which needs a leader and a quorum, and look for alarms.

Exit codes: 0 all are healthy, 1 one is not.`

func endpointHealth(env *cli.Env, cluster *bool) *cobra.Command {
	return &cobra.Command{
		Use:     "health",
		Short:   "Print whether members are healthy",
		Long:    healthHelp,
		Example: "  vigilctl endpoint health --cluster -w table",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := env.Open(c.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			targets, err := targets(env, c, cl, *cluster)
			if err != nil {
				return err
			}
			list := make([]show.Health, len(targets))
			var all sync.WaitGroup
			for i, ep := range targets {
				list[i] = show.Health{Endpoint: ep}
				all.Go(func() {
					err := runAt(env, c, cl, ep,
						func(_ string, s cli.Session) error { return checkHealth(s, &list[i]) })
					if list[i].Health = err == nil; err != nil {
						list[i].Error = cli.CallError(err).Error()
						if w := env.Waits(c.Context(), ep); w != nil {
							list[i].Error = "it " + w.Alive()
						}
					}
				})
			}
			all.Wait()
			return printHealth(env, list)
		},
	}
}

// checkHealth reads a key and the alarms of a member.
func checkHealth(s cli.Session, h *show.Health) error {
	began := time.Now()
	_, err := etcdserverpb.NewKVClient(s.Conn).Range(s.Ctx,
		&etcdserverpb.RangeRequest{Key: []byte("health")})
	h.Took = time.Since(began).String()
	// A member denies permission only after it has agreed with a quorum.
	if err != nil && status.Convert(err).Message() != client.ErrPermissionDenied.Error() {
		return err
	}
	r, err := etcdserverpb.NewMaintenanceClient(s.Conn).Alarm(s.Ctx, &etcdserverpb.AlarmRequest{})
	if err != nil {
		return errors.New("Unable to fetch the alarm list") //nolint:staticcheck // the text of etcdctl
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

func printHealth(env *cli.Env, list []show.Health) error {
	if err := env.Print(show.EndpointHealth(list)); err != nil {
		return err
	}
	unhealthy := false
	for _, h := range list {
		if h.Error == "" {
			continue
		}
		unhealthy = true
		if env.Format == string(show.Simple) {
			fmt.Fprintf(env.Stderr, "%s is unhealthy: failed to commit proposal: %s\n",
				h.Endpoint, h.Error)
		}
	}
	if unhealthy {
		return exit.With(exit.Failure, errors.New("unhealthy cluster"))
	}
	return nil
}

const statusHelp = `Print version, size, role in the cluster and alarms of each endpoint. With -w simple there is a line
for each; -w table has the names of the columns, and on a terminal those of the members.`

func endpointStatus(env *cli.Env, cluster *bool) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Print version, size, leader and alarms of members",
		Long:    statusHelp,
		Example: "  vigilctl endpoint status --cluster -w table",
		RunE: func(c *cobra.Command, _ []string) error {
			var list []show.Status
			var names map[uint64]string // for people: etcdctl prints no names
			err := collect(env, c, *cluster, "status", &list,
				func(ep string, s cli.Session) (show.Status, error) {
					r, err := etcdserverpb.NewMaintenanceClient(s.Conn).Status(s.Ctx,
						&etcdserverpb.StatusRequest{})
					if err == nil && len(names) == 0 && env.Format == string(show.Table) &&
						env.Watched() {
						names = memberNames(s)
					}
					return show.Status{Endpoint: ep, Status: r}, err
				})
			return printThen(env, show.EndpointStatus(list, names), withoutText(err))
		},
	}
}

const endpointHashHelp = `Print the hash of the keys of each endpoint with their history. Members with the same compact revision
must have the same hash at the same revision.`

func endpointHashKV(env *cli.Env, cluster *bool) *cobra.Command {
	var rev int64
	c := &cobra.Command{
		Use:     "hashkv",
		Short:   "Print the hash of the data of members",
		Long:    endpointHashHelp,
		Example: "  vigilctl endpoint hashkv --cluster --rev 4200",
		RunE: func(c *cobra.Command, _ []string) error {
			var list []show.HashKV
			err := collect(env, c, *cluster, "hash", &list,
				func(ep string, s cli.Session) (show.HashKV, error) {
					r, err := etcdserverpb.NewMaintenanceClient(s.Conn).HashKV(s.Ctx,
						&etcdserverpb.HashKVRequest{Revision: rev})
					return show.HashKV{Endpoint: ep, HashKV: r}, err
				})
			return printThen(env, show.EndpointHashKV(list), err)
		},
	}
	c.Flags().Int64Var(&rev, "rev", 0, "the last revision to hash; 0 is the newest")
	return c
}

// collect queries all endpoints and returns the last error. If logging in is impossible, it queries
// the given endpoints.
func collect[T any](env *cli.Env, c *cobra.Command, cluster bool, what string, list *[]T,
	ask func(ep string, s cli.Session) (T, error)) error {
	cl, noLogin, err := env.ConnectAnyway(c.Context())
	if err != nil {
		return err
	}
	defer cl.Close()
	targets, err := targets(env, c, cl, cluster && noLogin == nil)
	if err != nil {
		return err
	}
	var last error
	for _, ep := range targets {
		err := runAt(env, c, cl, ep, func(ep string, s cli.Session) error {
			v, err := ask(ep, s)
			if err == nil {
				*list = append(*list, v)
			}
			return err
		})
		if err != nil {
			last = cli.CallError(cli.Refused(err, noLogin))
			if w := env.Waits(c.Context(), ep); w != nil {
				last = exit.With(exit.Failure, errors.New("it "+w.Alive()))
			}
			fmt.Fprintf(env.Stderr, "Failed to get the %s of endpoint %s (%v)\n", what, ep, last)
		}
	}
	return last
}

// withoutText reduces an error that was already printed to its exit code.
func withoutText(err error) error {
	var e *exit.Error
	if errors.As(err, &e) && e.Code == exit.Failure {
		return exit.Silent(exit.Failure)
	}
	return err
}

// printThen prints an answer and returns err.
func printThen(env *cli.Env, answer show.Answer, err error) error {
	if e := env.Print(answer); e != nil {
		return e
	}
	return err
}
