package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/show"
)

func (a *app) userCommand() *cobra.Command {
	return group("user <subcommand>", "Users, their passwords and roles", "A user logs in with a password or a certificate, and may do what the roles may that were granted to it.",
		a.userAddCommand(),
		a.named("user", "delete <user name>", "Delete a user", "user", func(s session, name string) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.conn).UserDelete(s.ctx, &etcdserverpb.AuthUserDeleteRequest{Name: name})
			return show.Done(r, "User %s deleted", name), err
		}),
		a.userGetCommand(),
		a.listed("user", "List the users", func(s session) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.conn).UserList(s.ctx, &etcdserverpb.AuthUserListRequest{})
			return show.UserList(r), err
		}),
		a.userPasswordCommand(),
		a.userRoleCommand("grant-role <user name> <role name>", "Give a user a role", "user grant command requires user name and role name as its argument",
			func(s session, user, role string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.conn).UserGrantRole(s.ctx, &etcdserverpb.AuthUserGrantRoleRequest{User: user, Role: role})
				return show.Done(r, "Role %s is granted to user %s", role, user), err
			}),
		a.userRoleCommand("revoke-role <user name> <role name>", "Take a role from a user", "user revoke-role requires user name and role name as its argument",
			func(s session, user, role string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.conn).UserRevokeRole(s.ctx, &etcdserverpb.AuthUserRevokeRoleRequest{Name: user, Role: role})
				return show.Done(r, "Role %s is revoked from user %s", role, user), err
			}))
}

const (
	userAddHelp = `Make a user. The password is asked for twice on the terminal; for scripts it is read as a word from
standard input with --interactive=false, or given with --new-user-password or as USER:PASSWORD,
where others on the machine may see it. A user without a password logs in by the common name of a
certificate.`
	userAddExample = `  vigilctl user add alice
  vigilctl user add bot --interactive=false < password-file
  vigilctl user add node1.example.com --no-password`
	interactiveUsage = "ask for the password on the terminal; otherwise read it from standard input"
)

func (a *app) userAddCommand() *cobra.Command {
	var interactive, none bool
	var given string
	c := &cobra.Command{
		Use:     "add <user name or user:password> [options]",
		Short:   "Make a user",
		Long:    userAddHelp,
		Example: userAddExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("user add command requires user name as its argument")
			}
			r := &etcdserverpb.AuthUserAddRequest{Name: args[0], Options: &authpb.UserAddOptions{NoPassword: none}}
			switch name, password, both := strings.Cut(args[0], ":"); {
			case none:
			case given != "":
				r.Password = given
			case both && name == "":
				return badArgs("empty user name is not allowed")
			case both:
				r.Name, r.Password = name, password
			default:
				var err error
				if r.Password, err = a.newPassword(c.Context(), args[0], interactive); err != nil {
					return err
				}
			}
			return a.call(c, func(s session) (show.Answer, error) {
				resp, err := etcdserverpb.NewAuthClient(s.conn).UserAdd(s.ctx, r)
				return show.Done(resp, "User %s created", r.Name), err
			})
		},
	}
	c.Flags().BoolVar(&interactive, "interactive", true, interactiveUsage)
	c.Flags().StringVar(&given, "new-user-password", "", "the `PASSWORD`")
	c.Flags().BoolVar(&none, "no-password", false, "no password: the user logs in by a certificate's common name")
	return c
}

// newPassword asks for a password twice, or reads a word.
func (a *app) newPassword(ctx context.Context, user string, interactive bool) (string, error) {
	if !interactive {
		// Without a word the member says what it thinks of an empty password.
		var word string
		_, _ = fmt.Fscanf(interruptible{ctx, a.in}, "%s", &word)
		if ctx.Err() != nil {
			return "", errInputInterrupted
		}
		return word, nil
	}
	first, err := a.askPassword(ctx, fmt.Sprintf("Password of %s: ", user))
	if err != nil {
		return "", notAsked(err)
	}
	if first == "" {
		return "", badArgs("empty password")
	}
	second, err := a.askPassword(ctx, fmt.Sprintf("Type password of %s again for confirmation: ", user))
	if err != nil {
		return "", notAsked(err)
	}
	if first != second {
		return "", badArgs("given passwords are different")
	}
	return first, nil
}

// notAsked is the error of a password that could not be asked for.
func notAsked(err error) error {
	if errors.Is(err, errInputInterrupted) {
		return errInputInterrupted
	}
	return badArgs("failed to ask password: %w", err)
}

// askPassword reads a password from the terminal.
func (a *app) askPassword(ctx context.Context, prompt string) (string, error) {
	f, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return "", errors.New("a password is needed, and standard input is no terminal: give --password or --user NAME:PASSWORD")
	}
	state, err := term.GetState(int(f.Fd()))
	if err != nil {
		return "", err
	}
	fmt.Fprint(a.errOut, prompt)
	defer fmt.Fprintln(a.errOut)
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		b, err := term.ReadPassword(int(f.Fd()))
		read <- line{b, err}
	}()
	select {
	case l := <-read:
		return string(l.text), l.err
	case <-ctx.Done():
		return "", errors.Join(errInputInterrupted, term.Restore(int(f.Fd()), state))
	}
}

func (a *app) userGetCommand() *cobra.Command {
	var detail bool
	c := &cobra.Command{
		Use:   "get <user name> [options]",
		Short: "Tell what roles a user has",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("user get command requires user name as its argument")
			}
			return a.do(c, func(s session) error {
				api := etcdserverpb.NewAuthClient(s.conn)
				r, err := api.UserGet(s.ctx, &etcdserverpb.AuthUserGetRequest{Name: args[0]})
				if err != nil {
					return err
				}
				if !detail {
					return a.print(show.UserGet(args[0], r))
				}
				fmt.Fprintf(a.out, "User: %s\n", args[0])
				for _, role := range r.GetRoles() {
					fmt.Fprintln(a.out)
					perms, err := api.RoleGet(s.ctx, &etcdserverpb.AuthRoleGetRequest{Role: role})
					if err != nil {
						return err
					}
					if err := a.print(show.RoleGet(role, perms)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&detail, "detail", false, "tell what these roles may do, too")
	return c
}

func (a *app) userPasswordCommand() *cobra.Command {
	var interactive bool
	c := &cobra.Command{
		Use:   "passwd <user name> [options]",
		Short: "Change a user's password",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("user passwd command requires user name as its argument")
			}
			password, err := a.newPassword(c.Context(), args[0], interactive)
			if err != nil {
				return err
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.conn).UserChangePassword(s.ctx, &etcdserverpb.AuthUserChangePasswordRequest{Name: args[0], Password: password})
				return show.Done(r, "Password updated"), err
			})
		},
	}
	c.Flags().BoolVar(&interactive, "interactive", true, interactiveUsage)
	return c
}

func (a *app) userRoleCommand(use, short, want string, run func(s session, user, role string) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) != 2 {
			return badArgs("%s", want)
		}
		return a.call(c, func(s session) (show.Answer, error) { return run(s, args[0], args[1]) })
	}}
}
