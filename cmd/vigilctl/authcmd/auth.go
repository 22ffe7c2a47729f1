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

const authHelp = `Turn authentication on and off. It needs a user root with the role root: make the user first; enable
gives it the role.`

func Auth(env *cli.Env) *cobra.Command {
	return command.Group("auth <enable or disable>", "Turn authentication on and off", authHelp,
		authSubcommand(env, "enable", "Turn authentication on", enable),
		authSubcommand(env, "disable", "Turn authentication off", func(s cli.Session) (show.Answer, error) {
			_, err := etcdserverpb.NewAuthClient(s.Conn).AuthDisable(s.Ctx, &etcdserverpb.AuthDisableRequest{})
			return said("Authentication Disabled"), err
		}),
		authSubcommand(env, "status", "Tell whether authentication is on", func(s cli.Session) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.Conn).AuthStatus(s.Ctx, &etcdserverpb.AuthStatusRequest{})
			return show.AuthStatus(r), err
		}))
}

func authSubcommand(env *cli.Env, name, short string, run func(s cli.Session) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return exit.Usage("auth %s command does not accept any arguments", name)
		}
		return env.Call(c, run)
	}}
}

// said is an answer that is the same in every format.
func said(text string) show.Answer {
	say := func(p *show.Printer) { p.Printf("%s\n", text) }
	return show.Answer{Always: say}
}

// enable turns authentication on, and gives root its role if that is what is missing.
func enable(s cli.Session) (show.Answer, error) {
	api := etcdserverpb.NewAuthClient(s.Conn)
	_, err := api.AuthEnable(s.Ctx, &etcdserverpb.AuthEnableRequest{})
	if err != nil && status.Convert(err).Message() == rpctypes.ErrRootRoleNotExist.Error() {
		if _, err = api.RoleAdd(s.Ctx, &etcdserverpb.AuthRoleAddRequest{Name: "root"}); err == nil {
			_, err = api.UserGrantRole(s.Ctx, &etcdserverpb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
		}
		if err == nil {
			_, err = api.AuthEnable(s.Ctx, &etcdserverpb.AuthEnableRequest{})
		}
	}
	return said("Authentication Enabled"), err
}
