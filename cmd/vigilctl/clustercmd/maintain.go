package clustercmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

// Alarm returns the command alarm with its subcommands.
func Alarm(env *cli.Env) *cobra.Command {
	return command.Group("alarm <subcommand>", "List and disarm alarms",
		"An alarm reports a problem of a member that an operator must solve: NOSPACE, which rejects puts, or CORRUPT.\nDisarm it when the cause is gone.",
		alarmSubcommand(env, "list", "List the alarms that are raised"), alarmSubcommand(env, "disarm", "Disarm all alarms and print them"))
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
				r, err := api.Alarm(s.Ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_GET})
				if err != nil || name == "list" {
					return show.Alarms(r), err
				}
				return disarm(s, api, r)
			})
		},
	}
}

// disarm disarms alarms one by one: the API has no request for all.
func disarm(s cli.Session, api etcdserverpb.MaintenanceClient, raised *etcdserverpb.AlarmResponse) (show.Answer, error) {
	all := &etcdserverpb.AlarmResponse{}
	for _, m := range raised.GetAlarms() {
		r, err := api.Alarm(s.Ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: m.GetMemberID(), Alarm: m.GetAlarm()})
		if err != nil {
			return show.Answer{}, err
		}
		all.Alarms = append(all.Alarms, r.GetAlarms()...)
	}
	return show.Alarms(all), nil
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
				_, err := etcdserverpb.NewMaintenanceClient(s.Conn).Defragment(s.Ctx, &etcdserverpb.DefragmentRequest{})
				if took := time.Since(began); err != nil {
					fmt.Fprintf(env.Stderr, "Failed to defragment etcd member[%s]. took %s. (%v)\n", ep, took, cli.CallError(err))
					failures++
				} else {
					fmt.Fprintf(env.Stdout, "Finished defragmenting etcd member[%s]. took %s\n", ep, took)
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
		Use:     "move-leader <transferee-member-id>",
		Short:   "Make another member the leader",
		Long:    moveLeaderHelp,
		Example: "  vigilctl move-leader 8e9e05c52164694d --endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("move-leader command needs 1 argument")
			}
			to, err := command.UnsignedHex(args[0])
			if err != nil {
				return exit.Usage("bad member ID arg (%w), expecting ID in Hex", err)
			}
			var answer *show.Answer
			err = forEach(env, c, false, func(_ string, s cli.Session) error {
				if answer != nil {
					return nil
				}
				api := etcdserverpb.NewMaintenanceClient(s.Conn)
				st, err := api.Status(s.Ctx, &etcdserverpb.StatusRequest{})
				if err != nil || st.GetHeader().GetMemberId() != st.GetLeader() {
					return err
				}
				r, err := api.MoveLeader(s.Ctx, &etcdserverpb.MoveLeaderRequest{TargetID: to})
				if err == nil {
					moved := show.MoveLeader(st.GetLeader(), to, r)
					answer = &moved
				}
				return err
			})
			switch {
			case err != nil:
				return err
			case answer == nil:
				return exit.Usage("no leader endpoint given at %v", env.Endpoints)
			}
			return env.Print(*answer)
		},
	}
}

// Downgrade returns the command downgrade with its subcommands.
func Downgrade(env *cli.Env) *cobra.Command {
	return command.Group("downgrade <subcommand>", "Make the cluster report the API of the previous version",
		"Make the cluster report the level of etcd's API before its own: in its status, its metrics and its snapshots.\nThe programs of the members and their data stay as they are.\n\nThis does not prepare a return to an older version of Vigil. Members of an older version can be in the cluster\nuntil all members have run the newer one. After that the log and the data contain entries that the older\nversion does not know, and it stops at the first: return with a backup from before the upgrade.",
		downgradeSubcommand(env, "validate <TARGET_VERSION>", "Print whether a downgrade is possible", etcdserverpb.DowngradeRequest_VALIDATE),
		downgradeSubcommand(env, "enable <TARGET_VERSION>", "Start a downgrade", etcdserverpb.DowngradeRequest_ENABLE),
		downgradeSubcommand(env, "cancel", "Cancel a downgrade", etcdserverpb.DowngradeRequest_CANCEL))
}

func downgradeSubcommand(env *cli.Env, use, short string, action etcdserverpb.DowngradeRequest_DowngradeAction) *cobra.Command {
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
				r, err := etcdserverpb.NewMaintenanceClient(s.Conn).Downgrade(s.Ctx, &etcdserverpb.DowngradeRequest{Action: action, Version: version})
				return show.Downgrade(c.Name(), r), err
			})
		},
	}
}
