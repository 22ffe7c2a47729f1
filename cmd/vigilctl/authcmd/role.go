package authcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const roleHelp = `A role is a set of permissions, each to read, to write or to do both with a key or a range of keys.
Users have the permissions of the roles that are granted to them.`

// Role returns the command role with its subcommands.
func Role(env *cli.Env) *cobra.Command {
	return command.Group("role <subcommand>", "Manage roles and their permissions", roleHelp,
		nameCommand(env, "role", "add <role name>", "Add a role", "role",
			func(s cli.Session, name string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).RoleAdd(s.Ctx,
					&etcdserverpb.AuthRoleAddRequest{Name: name})
				return show.Done(r, "Role %s created", name), err
			}),
		nameCommand(env, "role", "delete <role name>", "Delete a role", "role",
			func(s cli.Session, name string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).RoleDelete(s.Ctx,
					&etcdserverpb.AuthRoleDeleteRequest{Role: name})
				return show.Done(r, "Role %s deleted", name), err
			}),
		nameCommand(env, "role", "get <role name>", "Print the permissions of a role", "role",
			func(s cli.Session, name string) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).RoleGet(s.Ctx,
					&etcdserverpb.AuthRoleGetRequest{Role: name})
				return show.RoleGet(name, r), err
			}),
		listCommand(env, "role", "List the roles", func(s cli.Session) (show.Answer, error) {
			r, err := etcdserverpb.NewAuthClient(s.Conn).RoleList(s.Ctx,
				&etcdserverpb.AuthRoleListRequest{})
			return show.RoleList(r), err
		}),
		roleGrant(env), roleRevoke(env))
}

// nameCommand returns a command whose only argument is the name of a user or a role.
func nameCommand(env *cli.Env, group, use, short, kind string,
	run func(s cli.Session, name string) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("%s %s command requires %s name as its argument", group,
					c.Name(), kind)
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) { return run(s, args[0]) })
		}}
}

// listCommand returns a command that lists users or roles.
func listCommand(env *cli.Env, group, short string,
	run func(s cli.Session) (show.Answer, error)) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 0 {
				return exit.Usage("%s list command requires no arguments", group)
			}
			return env.Call(c, run)
		}}
}

// keyRange has the flags for the keys of a permission.
type keyRange struct{ prefix, fromKey bool }

func (r *keyRange) addFlags(c *cobra.Command) {
	c.Flags().BoolVar(&r.prefix, "prefix", false, "all keys with the prefix KEY")
	c.Flags().BoolVar(&r.fromKey, "from-key", false, "KEY and all keys after it")
}

// bounds returns the range. It is all keys if the prefix or the first key is empty.
func (r *keyRange) bounds(args []string) (key, end []byte, err error) {
	key = []byte(args[0])
	switch {
	case r.prefix && r.fromKey:
		return nil, nil, exit.Usage("--from-key and --prefix flags are mutually exclusive")
	case len(key) == 0:
		if r.prefix || r.fromKey {
			end = []byte{0}
		}
		return []byte{0}, end, nil
	case len(args) > 1 && r.prefix:
		return nil, nil, exit.Usage("unexpected endkey argument with --prefix flag")
	case len(args) > 1 && r.fromKey:
		return nil, nil, exit.Usage("unexpected endkey argument with --from-key flag")
	case len(args) > 1:
		end = []byte(args[1])
	case r.prefix:
		end = []byte(client.PrefixEnd(args[0]))
	case r.fromKey:
		end = []byte{0}
	}
	return key, end, nil
}

func roleGrant(env *cli.Env) *cobra.Command {
	var keys keyRange
	c := &cobra.Command{
		Use:     "grant-permission [options] <role name> <permission type> <key> [endkey]",
		Short:   "Grant a role a permission: read, write or readwrite",
		Example: "  vigilctl role grant-permission web read --prefix services/web/",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 3 {
				return exit.Usage("role grant command requires role name, permission type, and key [endkey] as its argument")
			}
			kind, err := permissionType(args[1])
			if err != nil {
				if _, swapped := permissionType(args[2]); swapped == nil {
					err = exit.Usage("%w; the type comes before the key: vigilctl role grant-permission %s", err, command.QuoteArgs(args[0], args[2], args[1]))
				}
				return err
			}
			key, end, err := keys.bounds(args[2:])
			if err != nil {
				return err
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).RoleGrantPermission(s.Ctx,
					&etcdserverpb.AuthRoleGrantPermissionRequest{
						Name: args[0], Perm: &authpb.Permission{PermType: kind, Key: key,
							RangeEnd: end}})
				return show.Done(r, "Role %s updated", args[0]), err
			})
		},
	}
	keys.addFlags(c)
	return c
}

func roleRevoke(env *cli.Env) *cobra.Command {
	var keys keyRange
	c := &cobra.Command{
		Use:     "revoke-permission <role name> <key> [endkey]",
		Short:   "Revoke a permission of a role",
		Example: "  vigilctl role revoke-permission web --prefix services/web/",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.Usage("role revoke-permission command requires role name and key [endkey] as its argument")
			}
			key, end, err := keys.bounds(args[1:])
			if err != nil {
				return err
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				r, err := etcdserverpb.NewAuthClient(s.Conn).RoleRevokePermission(s.Ctx,
					&etcdserverpb.AuthRoleRevokePermissionRequest{Role: args[0], Key: key,
						RangeEnd: end})
				if _, typed := permissionType(args[1]); err != nil && typed == nil &&
					len(args) > 2 {
					err = fmt.Errorf("%w\n  %q was taken for a key: a permission is revoked by its keys, without a type: vigilctl role revoke-permission %s", cli.CallError(err), args[1], command.QuoteArgs(args[0], args[2]))
				}
				return show.Revoked(args[0], []byte(args[1]), end, r), err
			})
		},
	}
	keys.addFlags(c)
	return c
}

// permissionType parses the type of a permission.
func permissionType(word string) (authpb.Permission_Type, error) {
	v, ok := authpb.Permission_Type_value[strings.ToUpper(word)]
	if !ok {
		return 0, exit.Usage("invalid permission type: %s; read, write and readwrite are known",
			word)
	}
	return authpb.Permission_Type(v), nil
}
