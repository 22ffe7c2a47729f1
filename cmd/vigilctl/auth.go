package main

import (
	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/cmd/vigilctl/show"
)

const authHelp = `Turn authentication on and off. It needs a user root with the role root: make the user first; enable
gives it the role.`

func (a *app) authCommand() *cobra.Command {
	return group("auth <enable or disable>", "Turn authentication on and off", authHelp,
		a.authSubcommand("enable", "Turn authentication on", a.authEnable),
		a.authSubcommand("disable", "Turn authentication off", func(s session) (show.Answer, error) {
			_, err := etcdserverpb.NewAuthClient(s.conn).AuthDisable(s.ctx, &etcdserverpb.AuthDisableRequest{})
			return said("Authentication Disabled"), err
		}),
		a.authSubcommand("status", "Tell whether authentication is on", func(s session) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.conn).AuthStatus(s.ctx, &etcdserverpb.AuthStatusRequest{})
			return show.AuthStatus(r), err
		}))
}

func (a *app) authSubcommand(name, short string, run func(s session) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return badArgs("auth %s command does not accept any arguments", name)
		}
		return a.call(c, run)
	}}
}

// said is an answer that is the same in every format.
func said(text string) show.Answer {
	say := func(p *show.Printer) { p.Printf("%s\n", text) }
	return show.Answer{Always: say}
}

// authEnable turns authentication on, and gives root its role if that is what is missing.
func (a *app) authEnable(s session) (show.Answer, error) {
	api := etcdserverpb.NewAuthClient(s.conn)
	_, err := api.AuthEnable(s.ctx, &etcdserverpb.AuthEnableRequest{})
	if err != nil && status.Convert(err).Message() == rpctypes.ErrRootRoleNotExist.Error() {
		if _, err = api.RoleAdd(s.ctx, &etcdserverpb.AuthRoleAddRequest{Name: "root"}); err == nil {
			_, err = api.UserGrantRole(s.ctx, &etcdserverpb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
		}
		if err == nil {
			_, err = api.AuthEnable(s.ctx, &etcdserverpb.AuthEnableRequest{})
		}
	}
	return said("Authentication Enabled"), err
}
