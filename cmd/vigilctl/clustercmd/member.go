package clustercmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const memberHelp = `List and change the members of the cluster. IDs of members are hexadecimal; list prints them.

Add a member here first, and then start it with the settings that add prints. Adding it as a learner
is safer: it receives the data before it votes, and promote makes it a voter.`

// Member returns the command member with its subcommands.
func Member(env *cli.Env) *cobra.Command {
	return command.Group("member <subcommand>", "List, add, remove and change members", memberHelp,
		memberAdd(env), memberRemove(env), memberUpdate(env), memberList(env), memberPromote(env))
}

func memberAdd(env *cli.Env) *cobra.Command {
	var urls string
	var learner bool
	c := &cobra.Command{
		Use:     "add <memberName> [options]",
		Short:   "Add a member and print the settings for its first start",
		Example: "  vigilctl member add infra3 --learner --peer-urls http://10.0.0.4:2380",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 1 {
				return exit.Usage("member name not provided")
			}
			if len(args) > 1 {
				text := "too many arguments"
				for _, s := range args {
					if strings.HasPrefix(strings.ToLower(s), "http") {
						text += ", did you mean --peer-urls=" + s
					}
				}
				return exit.Usage("%s", text)
			}
			if urls == "" {
				return exit.Usage("member peer urls not provided")
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.Conn).MemberAdd(s.Ctx, &etcdserverpb.MemberAddRequest{PeerURLs: strings.Split(urls, ","), IsLearner: learner})
				return show.MemberAdd(r, args[0], urls), err
			})
		},
	}
	c.Flags().StringVar(&urls, "peer-urls", "", "the peer URLs of the member, `URL,...`")
	c.Flags().BoolVar(&learner, "learner", false, "add it as a learner, without a vote")
	return c
}

// memberArg parses the only argument, the ID of a member.
func memberArg(args []string) (uint64, error) {
	if len(args) != 1 {
		return 0, exit.Usage("member ID is not provided")
	}
	id, err := command.UnsignedHex(args[0])
	if err != nil {
		return 0, exit.Usage("bad member ID arg (%w), expecting ID in Hex", err)
	}
	return id, nil
}

// memberIDCommand returns a command whose only argument is the ID of a member.
func memberIDCommand(env *cli.Env, use, short, example string, call func(s cli.Session, id uint64) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, RunE: func(c *cobra.Command, args []string) error {
		id, err := memberArg(args)
		if err != nil {
			return err
		}
		return env.Call(c, func(s cli.Session) (show.Answer, error) { return call(s, id) })
	}}
}

func memberRemove(env *cli.Env) *cobra.Command {
	return memberIDCommand(env, "remove <memberID>", "Remove a member", "  vigilctl member remove 8e9e05c52164694d",
		func(s cli.Session, id uint64) (show.Answer, error) {
			r, err := etcdserverpb.NewClusterClient(s.Conn).MemberRemove(s.Ctx, &etcdserverpb.MemberRemoveRequest{ID: id})
			return show.MemberRemove(id, r), err
		})
}

func memberPromote(env *cli.Env) *cobra.Command {
	return memberIDCommand(env, "promote <memberID>", "Make a learner a voter", "  vigilctl member promote 8e9e05c52164694d",
		func(s cli.Session, id uint64) (show.Answer, error) {
			r, err := etcdserverpb.NewClusterClient(s.Conn).MemberPromote(s.Ctx, &etcdserverpb.MemberPromoteRequest{ID: id})
			return show.MemberPromote(id, r), err
		})
}

func memberUpdate(env *cli.Env) *cobra.Command {
	var urls string
	c := &cobra.Command{
		Use:     "update <memberID> [options]",
		Short:   "Change a member's peer URLs",
		Example: "  vigilctl member update 8e9e05c52164694d --peer-urls http://10.0.0.9:2380",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := memberArg(args)
			if err != nil {
				return err
			}
			if urls == "" {
				return exit.Usage("member peer urls not provided")
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.Conn).MemberUpdate(s.Ctx, &etcdserverpb.MemberUpdateRequest{ID: id, PeerURLs: strings.Split(urls, ",")})
				return show.MemberUpdate(id, r), err
			})
		},
	}
	c.Flags().StringVar(&urls, "peer-urls", "", "the peer URLs of the member, `URL,...`")
	return c
}

func memberList(env *cli.Env) *cobra.Command {
	var consistency string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the members",
		Long:    "List the members. With -w simple there is a line for each: ID, started or not, name, peer URLs, client URLs,\nlearner or not.",
		Example: "  vigilctl member list -w table",
		RunE: func(c *cobra.Command, _ []string) error {
			if consistency != "l" && consistency != "s" {
				return exit.With(exit.BadFeature, fmt.Errorf("unknown consistency flag %q: l and s are known", consistency))
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.Conn).MemberList(s.Ctx, &etcdserverpb.MemberListRequest{Linearizable: consistency == "l"})
				return show.MemberList(r), err
			})
		},
	}
	c.Flags().StringVar(&consistency, "consistency", "l", "l for linearizable, s for serializable: what the member knows, without asking others")
	command.CompleteFlag(c, "consistency", []string{"l", "s"})
	return c
}
