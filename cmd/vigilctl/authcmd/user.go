package authcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

// User returns the command user with its subcommands.
func User(env *cli.Env) *cobra.Command {
	return command.Group("user <subcommand>", "Manage users, their passwords and roles",
		"A user authenticates with a password or a certificate, and has the permissions of the roles granted to it.",
		userAdd(env),
		nameCommand(env, "user", "delete <user name>", "Delete a user", "user",
			func(s cli.Session, name string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).UserDelete(s.Ctx,
					&etcdserverpb.AuthUserDeleteRequest{Name: name})
				return show.Done(r, "User %s deleted", name), err
			}),
		userGet(env),
		listCommand(env, "user", "List the users", func(s cli.Session) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.Conn).UserList(s.Ctx,
				&etcdserverpb.AuthUserListRequest{})
			return show.UserList(r), err
		}),
		userPassword(env),
		changeRoleCommand(env, "grant-role <user name> <role name>", "Grant a user a role",
			"user grant command requires user name and role name as its argument",
			func(s cli.Session, user, role string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).UserGrantRole(s.Ctx,
					&etcdserverpb.AuthUserGrantRoleRequest{User: user, Role: role})
				return show.Done(r, "Role %s is granted to user %s", role, user), err
			}),
		changeRoleCommand(env, "revoke-role <user name> <role name>", "Revoke a role of a user",
			"user revoke-role requires user name and role name as its argument",
			func(s cli.Session, user, role string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).UserRevokeRole(s.Ctx,
					&etcdserverpb.AuthUserRevokeRoleRequest{Name: user, Role: role})
				return show.Done(r, "Role %s is revoked from user %s", role, user), err
			}))
}

const (
	userAddHelp = `Add a user. The command asks for the password twice on the terminal. For scripts it reads a word from
standard input with --interactive=false, or takes --new-user-password or USER:PASSWORD, which others
on the machine may see. A user without a password authenticates by the common name of a certificate.`
	userAddExample = `  vigilctl user add alice
  vigilctl user add bot --interactive=false < password-file
  vigilctl user add node1.example.com --no-password`
	interactiveUsage = "ask for the password on the terminal; otherwise read it from standard input"
)

func userAdd(env *cli.Env) *cobra.Command {
	var interactive, none bool
	var given string
	c := &cobra.Command{
		Use:     "add <user name or user:password> [options]",
		Short:   "Add a user",
		Long:    userAddHelp,
		Example: userAddExample,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 2:
				return exit.Usage("user add command requires user name as its argument; give a password as %s:PASSWORD, or with --new-user-password", args[0])
			case len(args) != 1:
				return exit.Usage("user add command requires user name as its argument")
			}
			r := &etcdserverpb.AuthUserAddRequest{Name: args[0],
				Options: &authpb.UserAddOptions{NoPassword: none}}
			switch name, password, both := strings.Cut(args[0], ":"); {
			case none:
				if given != "" {
					env.Note("--no-password is given too: --new-user-password is not used")
				}
			case given != "":
				r.Password = given
			case both && name == "":
				return exit.Usage("empty user name is not allowed")
			case both:
				r.Name, r.Password = name, password
			default:
				var err error
				otherwise := fmt.Sprintf("give it on standard input with --interactive=false, or as %s:PASSWORD or --new-user-password; or give --no-password", args[0])
				if r.Password, err = newPassword(c.Context(), env, args[0], interactive,
					otherwise); err != nil {
					return err
				}
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				resp, err := etcdserverpb.NewAuthClient(s.Conn).UserAdd(s.Ctx, r)
				return show.Done(resp, "User %s created", r.Name), err
			})
		},
	}
	c.Flags().BoolVar(&interactive, "interactive", true, interactiveUsage)
	c.Flags().StringVar(&given, "new-user-password", "", "the `PASSWORD`")
	c.Flags().BoolVar(&none, "no-password", false,
		"no password: the user authenticates by a certificate's common name")
	return c
}

// newPassword asks for a password twice, or reads a word from standard input. otherwise says how to
// give the password without a terminal.
func newPassword(ctx context.Context, env *cli.Env, user string, interactive bool,
	otherwise string) (string, error) {
	if !interactive {
		if env.Reads() {
			env.Note("type the password of %s and Enter; it is shown", user)
		}
		// Without a word, the member decides whether to accept an empty password.
		var word string
		_, _ = fmt.Fscanf(env.Input(ctx), "%s", &word)
		if ctx.Err() != nil {
			return "", cli.ErrInterrupted
		}
		if word == "" {
			env.Note("standard input has no word: the password of %s is empty", user)
		}
		return word, nil
	}
	first, err := env.AskPassword(ctx, fmt.Sprintf("Password of %s: ", user), otherwise)
	if err != nil {
		return "", askError(err)
	}
	if first == "" {
		return "", exit.Usage("empty password")
	}
	second, err := env.AskPassword(ctx,
		fmt.Sprintf("Type password of %s again for confirmation: ", user), otherwise)
	if err != nil {
		return "", askError(err)
	}
	if first != second {
		return "", exit.Usage("given passwords are different")
	}
	return first, nil
}

// askError returns the error when asking for a password fails.
func askError(err error) error {
	if errors.Is(err, cli.ErrInterrupted) {
		return cli.ErrInterrupted
	}
	return exit.Usage("failed to ask password: %w", err)
}

func userGet(env *cli.Env) *cobra.Command {
	var detail bool
	c := &cobra.Command{
		Use:   "get <user name> [options]",
		Short: "Print the roles of a user",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("user get command requires user name as its argument")
			}
			return env.Run(c, func(s cli.Session) error {
				api := etcdserverpb.NewAuthClient(s.Conn)
				r, err := api.UserGet(s.Ctx, &etcdserverpb.AuthUserGetRequest{Name: args[0]})
				if err != nil {
					return err
				}
				if !detail {
					return env.Print(show.UserGet(args[0], r))
				}
				fmt.Fprintf(env.Stdout, "User: %s\n", args[0])
				for _, role := range r.GetRoles() {
					fmt.Fprintln(env.Stdout)
					perms, err := api.RoleGet(s.Ctx, &etcdserverpb.AuthRoleGetRequest{Role: role})
					if err != nil {
						return err
					}
					if err := env.Print(show.RoleGet(role, perms)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&detail, "detail", false, "print the permissions of these roles too")
	return c
}

func userPassword(env *cli.Env) *cobra.Command {
	var interactive bool
	c := &cobra.Command{
		Use:   "passwd <user name> [options]",
		Short: "Change a user's password",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("user passwd command requires user name as its argument")
			}
			password, err := newPassword(c.Context(), env, args[0], interactive,
				"give it on standard input with --interactive=false")
			if err != nil {
				return err
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).UserChangePassword(s.Ctx,
					&etcdserverpb.AuthUserChangePasswordRequest{Name: args[0], Password: password})
				return show.Done(r, "Password updated"), err
			})
		},
	}
	c.Flags().BoolVar(&interactive, "interactive", true, interactiveUsage)
	return c
}

// changeRoleCommand returns a command whose arguments are a user and a role.
func changeRoleCommand(env *cli.Env, use, short, want string,
	run func(s cli.Session, user, role string) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return exit.Usage("%s", want)
			}
			return env.Call(c, func(s cli.Session) (show.Answer,
				error) {
				return run(s, args[0], args[1])
			})
		}}
}
