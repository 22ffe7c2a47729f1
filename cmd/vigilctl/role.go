package main

import (
	"strings"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/cmd/vigilctl/show"
)

const roleHelp = `A role is a name for permissions, each to read, to write or to do both with a key or a range of keys.
What users may do is what the roles that were granted to them may.`

func (a *app) roleCommand() *cobra.Command {
	return group("role <subcommand>", "Roles, and what they may read and write", roleHelp,
		a.named("role", "add <role name>", "Make a role", "role", func(s session, name string) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.conn).RoleAdd(s.ctx, &etcdserverpb.AuthRoleAddRequest{Name: name})
			return show.Done(r, "Role %s created", name), err
		}),
		a.named("role", "delete <role name>", "Delete a role", "role", func(s session, name string) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.conn).RoleDelete(s.ctx, &etcdserverpb.AuthRoleDeleteRequest{Role: name})
			return show.Done(r, "Role %s deleted", name), err
		}),
		a.named("role", "get <role name>", "Tell what a role may do", "role", func(s session, name string) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.conn).RoleGet(s.ctx, &etcdserverpb.AuthRoleGetRequest{Role: name})
			return show.RoleGet(name, r), err
		}),
		a.listed("role", "List the roles", func(s session) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.conn).RoleList(s.ctx, &etcdserverpb.AuthRoleListRequest{})
			return show.RoleList(r), err
		}),
		a.roleGrantCommand(), a.roleRevokeCommand())
}

// named is a command about a user or a role.
func (a *app) named(group, use, short, kind string, run func(s session, name string) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return badArgs("%s %s command requires %s name as its argument", group, c.Name(), kind)
		}
		return a.call(c, func(s session) (show.Answer, error) { return run(s, args[0]) })
	}}
}

// listed is a command without arguments.
func (a *app) listed(group, short string, run func(s session) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) != 0 {
			return badArgs("%s list command requires no arguments", group)
		}
		return a.call(c, run)
	}}
}

// permission is the keys that a permission is about.
type permission struct{ prefix, fromKey bool }

func (p *permission) flags(c *cobra.Command) {
	c.Flags().BoolVar(&p.prefix, "prefix", false, "all keys that begin with KEY")
	c.Flags().BoolVar(&p.fromKey, "from-key", false, "KEY and all keys behind it")
}

// span returns the range. Of a prefix or beginning that is empty it is everything.
func (p *permission) span(args []string) (key, end []byte, err error) {
	key = []byte(args[0])
	switch {
	case p.prefix && p.fromKey:
		return nil, nil, badArgs("--from-key and --prefix flags are mutually exclusive")
	case len(key) == 0:
		if p.prefix || p.fromKey {
			end = []byte{0}
		}
		return []byte{0}, end, nil
	case len(args) > 1 && p.prefix:
		return nil, nil, badArgs("unexpected endkey argument with --prefix flag")
	case len(args) > 1 && p.fromKey:
		return nil, nil, badArgs("unexpected endkey argument with --from-key flag")
	case len(args) > 1:
		end = []byte(args[1])
	case p.prefix:
		end = []byte(client.PrefixEnd(args[0]))
	case p.fromKey:
		end = []byte{0}
	}
	return key, end, nil
}

func (a *app) roleGrantCommand() *cobra.Command {
	var p permission
	c := &cobra.Command{
		Use:     "grant-permission [options] <role name> <permission type> <key> [endkey]",
		Short:   "Let a role read, write or both (readwrite)",
		Example: "  vigilctl role grant-permission web read --prefix services/web/",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 3 {
				return badArgs("role grant command requires role name, permission type, and key [endkey] as its argument")
			}
			kind, err := permissionType(args[1])
			if err != nil {
				return err
			}
			key, end, err := p.span(args[2:])
			if err != nil {
				return err
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.conn).RoleGrantPermission(s.ctx, &etcdserverpb.AuthRoleGrantPermissionRequest{
					Name: args[0], Perm: &authpb.Permission{PermType: kind, Key: key, RangeEnd: end}})
				return show.Done(r, "Role %s updated", args[0]), err
			})
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{"read", "write", "readwrite"}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	p.flags(c)
	return c
}

func (a *app) roleRevokeCommand() *cobra.Command {
	var p permission
	c := &cobra.Command{
		Use:     "revoke-permission <role name> <key> [endkey]",
		Short:   "Take a permission from a role",
		Example: "  vigilctl role revoke-permission web --prefix services/web/",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return badArgs("role revoke-permission command requires role name and key [endkey] as its argument")
			}
			key, end, err := p.span(args[1:])
			if err != nil {
				return err
			}
			return a.call(c, func(s session) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.conn).RoleRevokePermission(s.ctx, &etcdserverpb.AuthRoleRevokePermissionRequest{Role: args[0], Key: key, RangeEnd: end})
				return show.Revoked(args[0], []byte(args[1]), end, r), err
			})
		},
	}
	p.flags(c)
	return c
}

// permissionType reads what a permission is for.
func permissionType(word string) (authpb.Permission_Type, error) {
	v, ok := authpb.Permission_Type_value[strings.ToUpper(word)]
	if !ok {
		return 0, badArgs("invalid permission type: %s; read, write and readwrite are known", word)
	}
	return authpb.Permission_Type(v), nil
}
