package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/show"
)

const memberHelp = `List and change the members of the cluster. Ids of members are hexadecimal; list tells them.

A member is added here first and started then, with the settings that add prints. Adding it as a
learner is safer: it gets the data before it has a vote, and promote gives it one.`

func (a *app) memberCommand() *cobra.Command {
	return group("member <subcommand>", "List, add, remove and change members", memberHelp,
		a.memberAddCommand(), a.memberRemoveCommand(), a.memberUpdateCommand(), a.memberListCommand(), a.memberPromoteCommand())
}

func (a *app) memberAddCommand() *cobra.Command {
	var urls string
	var learner bool
	c := &cobra.Command{
		Use:     "add <memberName> [options]",
		Short:   "Add a member and print the settings for its first start",
		Example: "  vigilctl member add infra3 --learner --peer-urls http://10.0.0.4:2380",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 1 {
				return badArgs("member name not provided")
			}
			if len(args) > 1 {
				text := "too many arguments"
				for _, s := range args {
					if strings.HasPrefix(strings.ToLower(s), "http") {
						text += ", did you mean --peer-urls=" + s
					}
				}
				return badArgs("%s", text)
			}
			if urls == "" {
				return badArgs("member peer urls not provided")
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.conn).MemberAdd(s.ctx, &etcdserverpb.MemberAddRequest{PeerURLs: strings.Split(urls, ","), IsLearner: learner})
				return show.MemberAdd(r, args[0], urls), err
			})
		},
	}
	c.Flags().StringVar(&urls, "peer-urls", "", "where the member will be reached by the others, `URL,...`")
	c.Flags().BoolVar(&learner, "learner", false, "add it without a vote")
	return c
}

// memberArg reads the id of a member, the only argument.
func memberArg(args []string) (uint64, error) {
	if len(args) != 1 {
		return 0, badArgs("member ID is not provided")
	}
	id, err := strconv.ParseUint(args[0], 16, 64)
	if err != nil {
		return 0, badArgs("bad member ID arg (%w), expecting ID in Hex", err)
	}
	return id, nil
}

func (a *app) memberRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove <memberID>",
		Short:   "Remove a member",
		Example: "  vigilctl member remove 8e9e05c52164694d",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := memberArg(args)
			if err != nil {
				return err
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.conn).MemberRemove(s.ctx, &etcdserverpb.MemberRemoveRequest{ID: id})
				return show.MemberRemove(id, r), err
			})
		},
	}
}

func (a *app) memberUpdateCommand() *cobra.Command {
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
				return badArgs("member peer urls not provided")
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.conn).MemberUpdate(s.ctx, &etcdserverpb.MemberUpdateRequest{ID: id, PeerURLs: strings.Split(urls, ",")})
				return show.MemberUpdate(id, r), err
			})
		},
	}
	c.Flags().StringVar(&urls, "peer-urls", "", "where the member is reached by the others, `URL,...`")
	return c
}

func (a *app) memberListCommand() *cobra.Command {
	var consistency string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the members",
		Long:    "List the members. With -w simple there is a line for each: id, started or not, name, peer URLs, client URLs,\nlearner or not.",
		Example: "  vigilctl member list -w table",
		RunE: func(c *cobra.Command, _ []string) error {
			if consistency != "l" && consistency != "s" {
				return &exit{exitBadFeature, fmt.Errorf("unknown consistency flag %q: l and s are known", consistency)}
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.conn).MemberList(s.ctx, &etcdserverpb.MemberListRequest{Linearizable: consistency == "l"})
				return show.MemberList(r), err
			})
		},
	}
	c.Flags().StringVar(&consistency, "consistency", "l", "l for linearizable, s for serializable: what the member knows, at once")
	complete(c, "consistency", []string{"l", "s"})
	return c
}

func (a *app) memberPromoteCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "promote <memberID>",
		Short:   "Give a learner a vote",
		Example: "  vigilctl member promote 8e9e05c52164694d",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := memberArg(args)
			if err != nil {
				return err
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.conn).MemberPromote(s.ctx, &etcdserverpb.MemberPromoteRequest{ID: id})
				return show.MemberPromote(id, r), err
			})
		},
	}
}
