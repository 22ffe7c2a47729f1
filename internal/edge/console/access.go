package console

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// maxNames limits the users and roles in an answer.
const maxNames = 500

// userView is a user. roleView is a role.
type userView struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles"`
}

type roleView struct {
	Name        string       `json:"name"`
	Permissions []permission `json:"permissions"`
}

// accessView has all users and roles that the reader may see.
type accessView struct {
	Enabled bool       `json:"enabled"`
	Users   []userView `json:"users"`
	Roles   []roleView `json:"roles"`
	Cut     bool       `json:"cut,omitempty"`
}

func (c *Console) serveAccess(r *request) (any, error) {
	out := &accessView{Enabled: c.AuthEnabled(), Users: []userView{}, Roles: []roleView{}}
	users, err := c.auth.UserList(r.ctx, &etcdserverpb.AuthUserListRequest{})
	if err != nil {
		return nil, err
	}
	roles, err := c.auth.RoleList(r.ctx, &etcdserverpb.AuthRoleListRequest{})
	if err != nil {
		return nil, err
	}
	slices.Sort(users.Users)
	slices.Sort(roles.Roles)
	out.Cut = len(users.Users) > maxNames || len(roles.Roles) > maxNames
	left := room(maxPageBytes)
	for _, name := range users.Users[:min(len(users.Users), maxNames)] {
		u, err := c.auth.UserGet(r.ctx, &etcdserverpb.AuthUserGetRequest{Name: name})
		if err != nil {
			return nil, err
		}
		if !left.reserve(len(name) + sizeOf(u.Roles)) {
			out.Cut = true
			break
		}
		out.Users = append(out.Users, userView{name, append([]string{}, u.Roles...)})
	}
	for _, name := range roles.Roles[:min(len(roles.Roles), maxNames)] {
		x, err := c.auth.RoleGet(r.ctx, &etcdserverpb.AuthRoleGetRequest{Role: name})
		if err != nil {
			return nil, err
		}
		if !left.reserve(len(name)) {
			out.Cut = true
			break
		}
		list := left.permissions(x.Perm)
		out.Cut = out.Cut || len(list) < len(x.Perm)
		out.Roles = append(out.Roles, roleView{name, list})
	}
	return out, nil
}

// sizeOf returns the size of names in bytes.
func sizeOf(names []string) (n int) {
	for _, name := range names {
		n += len(name) + 3 // with the quotes and a comma
	}
	return n
}

// accessChange is a change to users and roles.
type accessChange struct {
	Do         string
	User, Role string
	Password   string
	NoPassword bool
	Key, End   []byte
	Prefix     bool
	Permission string // read, write or readwrite
}

// serveAccessChange makes a change. The API checks the user's permission.
func (c *Console) serveAccessChange(r *request) (any, error) {
	var in accessChange
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if in.Prefix {
		in.Key, in.End = from(in.Key), endOf(in.Key)
	}
	change := changesOfAccess[in.Do]
	if change == nil {
		return nil, badRequest("no change is called %q", in.Do)
	}
	if err := change(c, r.ctx, &in); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

var changesOfAccess = map[string]func(*Console, context.Context, *accessChange) error{
	"user-add": func(c *Console, ctx context.Context, in *accessChange) error {
		if in.Password == "" && !in.NoPassword {
			return badRequest("a password is required, or none for a user with a certificate")
		}
		_, err := c.auth.UserAdd(ctx,
			&etcdserverpb.AuthUserAddRequest{Name: in.User, Password: in.Password,
				Options: &authpb.UserAddOptions{NoPassword: in.NoPassword}})
		return err
	},
	"user-delete": func(c *Console, ctx context.Context, in *accessChange) error {
		_, err := c.auth.UserDelete(ctx, &etcdserverpb.AuthUserDeleteRequest{Name: in.User})
		return err
	},
	"user-password": func(c *Console, ctx context.Context, in *accessChange) error {
		if in.Password == "" {
			return badRequest("a password is required")
		}
		_, err := c.auth.UserChangePassword(ctx,
			&etcdserverpb.AuthUserChangePasswordRequest{Name: in.User, Password: in.Password})
		return err
	},
	"user-grant": func(c *Console, ctx context.Context, in *accessChange) error {
		_, err := c.auth.UserGrantRole(ctx,
			&etcdserverpb.AuthUserGrantRoleRequest{User: in.User, Role: in.Role})
		return err
	},
	"user-revoke": func(c *Console, ctx context.Context, in *accessChange) error {
		_, err := c.auth.UserRevokeRole(ctx,
			&etcdserverpb.AuthUserRevokeRoleRequest{Name: in.User, Role: in.Role})
		return err
	},
	"role-add": func(c *Console, ctx context.Context, in *accessChange) error {
		_, err := c.auth.RoleAdd(ctx, &etcdserverpb.AuthRoleAddRequest{Name: in.Role})
		return err
	},
	"role-delete": func(c *Console, ctx context.Context, in *accessChange) error {
		_, err := c.auth.RoleDelete(ctx, &etcdserverpb.AuthRoleDeleteRequest{Role: in.Role})
		return err
	},
	"role-grant": func(c *Console, ctx context.Context, in *accessChange) error {
		kind, ok := map[string]authpb.Permission_Type{"read": authpb.READ, "write": authpb.WRITE,
			"readwrite": authpb.READWRITE}[in.Permission]
		if !ok {
			return badRequest("the permission %q is none of read, write, readwrite", in.Permission)
		}
		_, err := c.auth.RoleGrantPermission(ctx,
			&etcdserverpb.AuthRoleGrantPermissionRequest{Name: in.Role,
				Perm: &authpb.Permission{PermType: kind, Key: in.Key, RangeEnd: in.End}})
		return err
	},
	"role-revoke": func(c *Console, ctx context.Context, in *accessChange) error {
		_, err := c.auth.RoleRevokePermission(ctx,
			&etcdserverpb.AuthRoleRevokePermissionRequest{Role: in.Role, Key: in.Key,
				RangeEnd: in.End})
		return err
	},
}
