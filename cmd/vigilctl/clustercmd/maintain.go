package clustercmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

// Alarm returns the command alarm with its subcommands.
func Alarm(env *cli.Env) *cobra.Command {
	return command.Group("alarm <subcommand>", "List and disarm alarms",
		"An alarm reports a problem of a member that an operator must solve: NOSPACE, which rejects puts, or CORRUPT.\nDisarm it when the cause is gone.",
		alarmSubcommand(env, "list", "List the alarms that are raised"),
		alarmSubcommand(env, "disarm", "Disarm all alarms and print them"))
}

func alarmSubcommand(env *cli.Env, name, short string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage("alarm %s command accepts no arguments", name)
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				api := etcdserverpb.NewMaintenanceClient(s.Conn)
				r, err := api.Alarm(s.Ctx,
					&etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_GET})
				if err == nil && name == "disarm" {
					r, err = disarm(s, api, r)
				}
				if err != nil {
					return show.Answer{}, err
				}
				return show.Alarms(r, alarmNames(env, s, r)), nil
			})
		},
	}
}

// alarmNames returns the names of the members, both for a table and for a sentence.
func alarmNames(env *cli.Env, s cli.Session, r *etcdserverpb.AlarmResponse) map[uint64]string {
	if len(r.GetAlarms()) == 0 || env.Format != string(show.Table) && !env.Watched() {
		return nil
	}
	return memberNames(s)
}

// disarm disarms alarms one by one: the API cannot disarm all at once.
func disarm(s cli.Session, api etcdserverpb.MaintenanceClient,
	raised *etcdserverpb.AlarmResponse) (*etcdserverpb.AlarmResponse, error) {
	all := &etcdserverpb.AlarmResponse{}
	for _, m := range raised.GetAlarms() {
		r, err := api.Alarm(s.Ctx,
			&etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE,
				MemberID: m.GetMemberID(), Alarm: m.GetAlarm()})
		if err != nil {
			return nil, err
		}
		all.Alarms = append(all.Alarms, r.GetAlarms()...)
	}
	return all, nil
}

const defragHelp = `Free the disk space of compacted revisions. Members of Vigil free it by themselves, a little at a time;
this command frees all of it now, without blocking requests. A member of etcd serves no requests
meanwhile: defragment one member after the other there.`

// Defrag returns the command defrag.
func Defrag(env *cli.Env) *cobra.Command {
	var cluster bool
	c := &cobra.Command{
		Use:     "defrag",
		Short:   "Free the disk space of compacted revisions",
		Long:    defragHelp,
		Example: "  vigilctl defrag --cluster",
		RunE: func(c *cobra.Command, _ []string) error {
			failures := 0
			err := forEach(env, c, cluster, func(ep string, s cli.Session) error {
				began := time.Now()
				_, err := etcdserverpb.NewMaintenanceClient(s.Conn).Defragment(s.Ctx,
					&etcdserverpb.DefragmentRequest{})
				if took := time.Since(began); err != nil {
					fmt.Fprintf(env.Stderr, "Failed to defragment etcd member[%s]. took %s. (%v)\n",
						ep, took, cli.CallError(err))
					failures++
				} else {
					fmt.Fprintf(env.Stdout,
						"Finished defragmenting etcd member[%s]. took %s\n", ep, took)
				}
				return nil
			})
			if err == nil && failures > 0 {
				err = exit.Silent(exit.Failure)
			}
			return err
		},
	}
	addClusterFlag(c, &cluster)
	return c
}

const moveLeaderHelp = `Make another member the leader, for instance before maintenance of the leader's machine. The current
leader must be among --endpoints: only it can transfer leadership.`

// MoveLeader returns the command move-leader.
func MoveLeader(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "move-leader <transferee-member-id or name>",
		Short:   "Make another member the leader",
		Long:    moveLeaderHelp,
		Example: "  vigilctl move-leader m2 --endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || args[0] == "":
				return exit.Usage("move-leader command needs 1 argument")
			case len(args) > 1:
				return exit.Usage("move-leader command needs 1 argument, the ID or the name of the new leader, not %d", len(args))
			}
			var answer *show.Answer
			var leader uint64
			var leaderAt string
			err := forEach(env, c, false, func(_ string, s cli.Session) error {
				if answer != nil {
					return nil
				}
				api := etcdserverpb.NewMaintenanceClient(s.Conn)
				st, err := api.Status(s.Ctx, &etcdserverpb.StatusRequest{})
				if err != nil {
					return err
				}
				if leader = st.GetLeader(); st.GetHeader().GetMemberId() != leader {
					leaderAt = urlOf(s, leader)
					return nil
				}
				to, err := chooseMember(s, args[0])
				if err != nil {
					return err
				}
				r, err := api.MoveLeader(s.Ctx, &etcdserverpb.MoveLeaderRequest{TargetID: to.id})
				if err == nil {
					from := ""
					if to.name != "" {
						from = memberNames(s)[leader]
					}
					moved := show.MoveLeader(leader, to.id, from, to.name, r)
					answer = &moved
				}
				return to.explainUnknown(err)
			})
			switch {
			case err != nil:
				return err
			case answer == nil && leaderAt != "":
				return exit.Usage("no leader endpoint given at %v\n  the leader is %x at %s\n  next: %s", env.Endpoints, leader, leaderAt, env.CommandAt(c, args, leaderAt))
			case answer == nil:
				return exit.Usage("no leader endpoint given at %v", env.Endpoints)
			}
			return env.Print(*answer)
		},
	}
}

// urlOf returns the first client URL of a member, "" if unknown.
func urlOf(s cli.Session, id uint64) string {
	r, err := etcdserverpb.NewClusterClient(s.Conn).MemberList(s.Ctx,
		&etcdserverpb.MemberListRequest{})
	if err != nil {
		return ""
	}
	for _, m := range r.GetMembers() {
		if m.GetID() == id && len(m.GetClientURLs()) > 0 {
			return screen.SafeLine(0, m.GetClientURLs()[0])
		}
	}
	return ""
}

// Downgrade returns the command downgrade with its subcommands.
func Downgrade(env *cli.Env) *cobra.Command {
	return command.Group("downgrade <subcommand>",
		"Make the cluster report the API of the previous version",
		"Make the cluster report the level of etcd's API before its own: in its status, its metrics and its snapshots.\nThe programs of the members and their data stay as they are.\n\nThis does not prepare a return to an older version of Vigil. Members of an older version can be in the cluster\nuntil all members have run the newer one. After that the log and the data contain entries that the older\nversion does not know, and it stops at the first: return with a backup from before the upgrade.",
		downgradeSubcommand(env, "validate <TARGET_VERSION>",
			"Print whether a downgrade is possible", etcdserverpb.DowngradeRequest_VALIDATE),
		downgradeSubcommand(env, "enable <TARGET_VERSION>", "Start a downgrade",
			etcdserverpb.DowngradeRequest_ENABLE),
		downgradeSubcommand(env, "cancel", "Cancel a downgrade",
			etcdserverpb.DowngradeRequest_CANCEL))
}

func downgradeSubcommand(env *cli.Env, use, short string,
	action etcdserverpb.DowngradeRequest_DowngradeAction) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			var version string
			if action != etcdserverpb.DowngradeRequest_CANCEL {
				switch {
				case len(args) < 1:
					return exit.Usage("TARGET_VERSION not provided")
				case len(args) > 1:
					return exit.Usage("too many arguments")
				case args[0] == "":
					return exit.Usage("target version not provided")
				}
				version = args[0]
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewMaintenanceClient(s.Conn).Downgrade(s.Ctx,
					&etcdserverpb.DowngradeRequest{Action: action, Version: version})
				return show.Downgrade(c.Name(), r), err
			})
		},
	}
}
