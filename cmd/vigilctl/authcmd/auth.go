// Package authcmd has the commands for authentication, users and roles: auth, user, role.
package authcmd

import (
	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const authHelp = `Turn authentication on and off. It needs a user root with the role root: add the user first; enable
grants it the role.`

// Auth returns the command auth with its subcommands.
func Auth(env *cli.Env) *cobra.Command {
	return command.Group("auth <enable or disable>", "Turn authentication on and off", authHelp,
		authSubcommand(env, "enable", "Turn authentication on", enable),
		authSubcommand(env, "disable", "Turn authentication off",
			func(s cli.Session) (show.Answer, error) {
				_, err := etcdserverpb.NewAuthClient(s.Conn).AuthDisable(s.Ctx,
					&etcdserverpb.AuthDisableRequest{})
				return show.Message("Authentication Disabled"), err
			}),
		authSubcommand(env, "status", "Print whether authentication is on",
			func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).AuthStatus(s.Ctx,
					&etcdserverpb.AuthStatusRequest{})
				return show.AuthStatus(r), err
			}))
}

func authSubcommand(env *cli.Env, name, short string,
	run func(s cli.Session) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: name, Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage("auth %s command does not accept any arguments", name)
			}
			return env.Call(c, run)
		}}
}

// enable turns authentication on. It creates the role root and grants it to the user root if either
// is missing.
func enable(s cli.Session) (show.Answer, error) {
	api := etcdserverpb.NewAuthClient(s.Conn)
	_, err := api.AuthEnable(s.Ctx, &etcdserverpb.AuthEnableRequest{})
	if err != nil && status.Convert(err).Message() == rpctypes.ErrRootRoleNotExist.Error() {
		if _, err = api.RoleAdd(s.Ctx, &etcdserverpb.AuthRoleAddRequest{Name: "root"}); err == nil {
			_, err = api.UserGrantRole(s.Ctx,
				&etcdserverpb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
		}
		if err == nil {
			_, err = api.AuthEnable(s.Ctx, &etcdserverpb.AuthEnableRequest{})
		}
	}
	return show.Message("Authentication Enabled"), err
}
