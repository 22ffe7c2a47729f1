package clustercmd

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const memberRemoveHelp = `Remove a member. Its data cannot join again: a new member with an empty directory can.

On a terminal the command asks first if the other members that answer would not be a majority.`

const memberHelp = `List and change the members of the cluster. A member is named by its name or by its ID, which is
hexadecimal; list prints both. An ID wins over a name that is the same text.

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
				return exit.Usage("too many arguments%s", suggestPeerURLs(args))
			}
			if urls == "" {
				return exit.Usage("member peer urls not provided: give --peer-urls")
			}
			if err := checkPeerURLs(urls); err != nil {
				return err
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.Conn).MemberAdd(s.Ctx,
					&etcdserverpb.MemberAddRequest{PeerURLs: strings.Split(urls, ","),
						IsLearner: learner})
				if err == nil {
					noteSameName(env, r, args[0])
				}
				return show.MemberAdd(r, args[0], urls), err
			})
		},
	}
	c.Flags().StringVar(&urls, "peer-urls", "", "the peer URLs of the member, `URL,...`")
	c.Flags().BoolVar(&learner, "learner", false, "add it as a learner, without a vote")
	return c
}

// noteSameName warns that a new member has the name of another one: it cannot start with the
// printed settings.
func noteSameName(env *cli.Env, r *etcdserverpb.MemberAddResponse, name string) {
	for _, m := range r.GetMembers() {
		if m.GetName() == name && m.GetID() != r.GetMember().GetID() {
			env.Note("another member has the name %q, too: remove %x again, and choose another name", name, r.GetMember().GetID())
		}
	}
}

// memberArg returns the only argument, the ID or the name of a member.
func memberArg(args []string) (string, error) {
	switch {
	case len(args) == 0 || args[0] == "":
		return "", exit.Usage("member ID is not provided")
	case len(args) > 1:
		return "", exit.Usage("member ID is not provided: want one ID or name, not %d arguments",
			len(args))
	}
	return args[0], nil
}

// memberCommand returns a command whose only argument is the ID or the name of a member.
func memberCommand(env *cli.Env, use, short, example string,
	call func(s cli.Session, m *chosen) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example,
		RunE: func(c *cobra.Command, args []string) error {
			arg, err := memberArg(args)
			if err != nil {
				return err
			}
			return env.Call(c, func(s cli.Session) (show.Answer,
				error) {
				return callChosen(s, arg, call)
			})
		}}
}

// callChosen makes a call about the member that an argument names.
func callChosen(s cli.Session, arg string,
	call func(s cli.Session, m *chosen) (show.Answer, error)) (show.Answer, error) {
	m, err := chooseMember(s, arg)
	if err != nil {
		return show.Answer{}, err
	}
	answer, err := call(s, &m)
	return answer, m.explainUnknown(err)
}

func memberRemove(env *cli.Env) *cobra.Command {
	var yes cli.Yes
	c := &cobra.Command{
		Use:     "remove <memberID or name>",
		Short:   "Remove a member",
		Long:    memberRemoveHelp,
		Example: "  vigilctl member remove m3\n  vigilctl member remove 8e9e05c52164694d",
		RunE: func(c *cobra.Command, args []string) error {
			arg, err := memberArg(args)
			if err != nil {
				return err
			}
			return env.CallAsking(c, yes, "nothing was removed",
				func(s cli.Session) (string, error) { return removalQuestion(env, s, arg) },
				func(s cli.Session) (show.Answer, error) {
					return callChosen(s, arg, func(s cli.Session, m *chosen) (show.Answer, error) {
						r, err := etcdserverpb.NewClusterClient(s.Conn).MemberRemove(s.Ctx,
							&etcdserverpb.MemberRemoveRequest{ID: m.id})
						return show.MemberRemove(m.id, m.name, r), err
					})
				})
		},
	}
	yes.AddFlag(c)
	return c
}

func memberPromote(env *cli.Env) *cobra.Command {
	return memberCommand(env, "promote <memberID or name>", "Make a learner a voter",
		"  vigilctl member promote m4\n  vigilctl member promote 8e9e05c52164694d",
		func(s cli.Session, m *chosen) (show.Answer, error) {
			r, err := etcdserverpb.NewClusterClient(s.Conn).MemberPromote(s.Ctx,
				&etcdserverpb.MemberPromoteRequest{ID: m.id})
			return show.MemberPromote(m.id, m.name, r), err
		})
}

func memberUpdate(env *cli.Env) *cobra.Command {
	var urls string
	c := memberCommand(env, "update <memberID or name> [options]", "Change a member's peer URLs",
		"  vigilctl member update m3 --peer-urls http://10.0.0.9:2380",
		func(s cli.Session, m *chosen) (show.Answer, error) {
			r, err := etcdserverpb.NewClusterClient(s.Conn).MemberUpdate(s.Ctx,
				&etcdserverpb.MemberUpdateRequest{ID: m.id, PeerURLs: strings.Split(urls, ",")})
			return show.MemberUpdate(m.id, m.name, r), err
		})
	c.Flags().StringVar(&urls, "peer-urls", "", "the peer URLs of the member, `URL,...`")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		switch _, err := memberArg(args); {
		case err != nil:
			return exit.Usage("%w%s", err, suggestPeerURLs(args))
		case urls == "":
			return exit.Usage("member peer urls not provided: give --peer-urls")
		}
		if err := checkPeerURLs(urls); err != nil {
			return err
		}
		return run(c, args)
	}
	return c
}

// suggestPeerURLs names the flag that is missing when the arguments contain URLs.
func suggestPeerURLs(args []string) (text string) {
	for _, s := range args {
		if strings.HasPrefix(strings.ToLower(s), "http") {
			text += ", did you mean --peer-urls=" + command.QuoteWords(s)
		}
	}
	return text
}

// checkPeerURLs checks peer URLs. The cluster's own error does not name the URL that it rejects.
func checkPeerURLs(list string) error {
	for s := range strings.SplitSeq(list, ",") {
		u, err := url.Parse(strings.TrimSpace(s))
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix" &&
			u.Scheme != "unixs":
			return fmt.Errorf("URL scheme must be http, https, unix, or unixs: %s: want --peer-urls http://HOST:PORT", s)
		case strings.HasPrefix(u.Scheme, "unix"):
			continue
		}
		// etcdctl accepts http://:2380 as a URL.
		if _, _, err := net.SplitHostPort(u.Host); err != nil {
			return fmt.Errorf(`URL address does not have the form "host:port": %s`, s)
		}
		if u.Path != "" {
			return fmt.Errorf("URL must not contain a path: %s", s)
		}
	}
	return nil
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
				return exit.With(exit.BadFeature,
					fmt.Errorf("unknown consistency flag %q: l and s are known", consistency))
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewClusterClient(s.Conn).MemberList(s.Ctx,
					&etcdserverpb.MemberListRequest{Linearizable: consistency == "l"})
				return show.MemberList(r), err
			})
		},
	}
	c.Flags().StringVar(&consistency, "consistency", "l",
		"l for linearizable, s for serializable: what the member knows, without asking others")
	command.CompleteFlag(c, "consistency", []string{"l", "s"})
	return c
}
