package client

import (
	"context"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client/internal/credential"
	"vigil/client/internal/request"
)

var (
	authEnableMethod   = write("Auth", "AuthEnable", "enable authentication")
	authDisableMethod  = write("Auth", "AuthDisable", "disable authentication")
	authStatusMethod   = read("Auth", "AuthStatus", "authentication status")
	authenticateMethod = read("Auth", "Authenticate", "authenticate")
	userAddMethod      = write("Auth", "UserAdd", "add user")
	userGetMethod      = read("Auth", "UserGet", "get user")
	userListMethod     = read("Auth", "UserList", "list users")
	userDeleteMethod   = write("Auth", "UserDelete", "delete user")
	userPasswordMethod = write("Auth", "UserChangePassword", "change password")
	userGrantMethod    = write("Auth", "UserGrantRole", "grant role")
	userRevokeMethod   = write("Auth", "UserRevokeRole", "revoke role")
	roleAddMethod      = write("Auth", "RoleAdd", "add role")
	roleGetMethod      = read("Auth", "RoleGet", "get role")
	roleListMethod     = read("Auth", "RoleList", "list roles")
	roleDeleteMethod   = write("Auth", "RoleDelete", "delete role")
	rolePermitMethod   = write("Auth", "RoleGrantPermission", "grant permission")
	roleForbidMethod   = write("Auth", "RoleRevokePermission", "revoke permission")
)

// Auth makes the calls about authentication, users and roles. It is safe for concurrent use, and
// uses the members and the token of its [Client]. A namespace does not change the keys of
// permissions. Calls that return a [Header] without an error have taken effect.
type Auth struct{ c *Client }

// Auth returns the calls about authentication, users and roles.
func (c *Client) Auth() Auth { return Auth{c} }

// Enable turns authentication on. There must be a user root with the role root, otherwise it fails
// with [ErrNoRootUser] or [ErrNoRootRole].
func (a Auth) Enable(ctx context.Context) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthEnableResponse](ctx, a.c, &authEnableMethod, "",
		&etcdserverpb.AuthEnableRequest{}))
}

// Disable turns authentication off.
func (a Auth) Disable(ctx context.Context) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthDisableResponse](ctx, a.c, &authDisableMethod, "",
		&etcdserverpb.AuthDisableRequest{}))
}

// AuthStatus is the answer of [Auth.Status].
type AuthStatus struct {
	Header Header
	// Enabled reports whether authentication is on.
	Enabled bool
	// Revision counts the changes of users, roles and authentication.
	Revision uint64
}

// Status reports whether authentication is on.
func (a Auth) Status(ctx context.Context) (*AuthStatus, error) {
	r, err := ask[etcdserverpb.AuthStatusResponse](ctx, a.c, &authStatusMethod, "",
		&etcdserverpb.AuthStatusRequest{})
	if err != nil {
		return nil, err
	}
	return &AuthStatus{Header: header(r.Header), Enabled: r.Enabled, Revision: r.AuthRevision}, nil
}

// Authenticate exchanges a password for a token. A client with [Config.Username] calls it by
// itself.
func (a Auth) Authenticate(ctx context.Context, user, password string) (Token, error) {
	req := &request.Generated{Message: &etcdserverpb.AuthenticateRequest{Name: user,
		Password: password}}
	r, err := callWith[etcdserverpb.AuthenticateResponse](ctx, a.c, &authenticateMethod, user, req,
		credential.NewCredential(credential.Token{}))
	return Token{Value: r.GetToken()}, err
}

// UserAdd adds a user with a password.
func (a Auth) UserAdd(ctx context.Context, user, password string) (Header, error) {
	return a.addUser(ctx,
		&etcdserverpb.AuthUserAddRequest{Name: user, Password: password,
			Options: &authpb.UserAddOptions{}})
}

// UserAddNoPassword adds a user that authenticates only with a certificate.
func (a Auth) UserAddNoPassword(ctx context.Context, user string) (Header, error) {
	return a.addUser(ctx,
		&etcdserverpb.AuthUserAddRequest{Name: user,
			Options: &authpb.UserAddOptions{NoPassword: true}})
}

func (a Auth) addUser(ctx context.Context, r *etcdserverpb.AuthUserAddRequest) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthUserAddResponse](ctx, a.c, &userAddMethod, r.Name, r))
}

// User is a user with its roles.
type User struct {
	Header Header
	Name   string
	Roles  []string
}

// UserGet returns a user with its roles.
func (a Auth) UserGet(ctx context.Context, user string) (*User, error) {
	r, err := ask[etcdserverpb.AuthUserGetResponse](ctx, a.c, &userGetMethod, user,
		&etcdserverpb.AuthUserGetRequest{Name: user})
	if err != nil {
		return nil, err
	}
	return &User{Header: header(r.Header), Name: user, Roles: r.Roles}, nil
}

// UserList returns the names of all users.
func (a Auth) UserList(ctx context.Context) ([]string, error) {
	r, err := ask[etcdserverpb.AuthUserListResponse](ctx, a.c, &userListMethod, "",
		&etcdserverpb.AuthUserListRequest{})
	return r.GetUsers(), err
}

// UserDelete deletes a user.
func (a Auth) UserDelete(ctx context.Context, user string) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthUserDeleteResponse](ctx, a.c, &userDeleteMethod, user,
		&etcdserverpb.AuthUserDeleteRequest{Name: user}))
}

// UserChangePassword changes the password of a user.
func (a Auth) UserChangePassword(ctx context.Context, user, password string) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthUserChangePasswordResponse](ctx, a.c,
		&userPasswordMethod, user,
		&etcdserverpb.AuthUserChangePasswordRequest{Name: user, Password: password}))
}

// UserGrantRole grants a role to a user.
func (a Auth) UserGrantRole(ctx context.Context, user, role string) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthUserGrantRoleResponse](ctx, a.c, &userGrantMethod, user,
		&etcdserverpb.AuthUserGrantRoleRequest{User: user, Role: role}))
}

// UserRevokeRole takes a role from a user.
func (a Auth) UserRevokeRole(ctx context.Context, user, role string) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthUserRevokeRoleResponse](ctx, a.c, &userRevokeMethod, user,
		&etcdserverpb.AuthUserRevokeRoleRequest{Name: user, Role: role}))
}

// PermissionType says what a [Permission] allows.
type PermissionType uint8

// The types of permissions, with the numbers of the API.
const (
	PermissionRead PermissionType = iota
	PermissionWrite
	PermissionReadWrite
)

// String returns READ, WRITE or READWRITE, as the API writes them.
func (t PermissionType) String() string { return authpb.Permission_Type(t).String() }

// Permission allows a role to read or write a key or a range of keys.
type Permission struct {
	Type PermissionType
	// Key is the key, or the first key of a range. End is the end of the range: empty for a single
	// key, "\x00" for all keys from Key on, [PrefixEnd] of Key for all keys that begin with it.
	Key, End string
}

// Role is a role with its permissions.
type Role struct {
	Header      Header
	Name        string
	Permissions []Permission
}

// RoleAdd adds a role without permissions.
func (a Auth) RoleAdd(ctx context.Context, role string) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthRoleAddResponse](ctx, a.c, &roleAddMethod, role,
		&etcdserverpb.AuthRoleAddRequest{Name: role}))
}

// RoleGet returns a role with its permissions.
func (a Auth) RoleGet(ctx context.Context, role string) (*Role, error) {
	r, err := ask[etcdserverpb.AuthRoleGetResponse](ctx, a.c, &roleGetMethod, role,
		&etcdserverpb.AuthRoleGetRequest{Role: role})
	if err != nil {
		return nil, err
	}
	out := &Role{Header: header(r.Header), Name: role}
	for _, p := range r.Perm {
		out.Permissions = append(out.Permissions,
			Permission{PermissionType(p.PermType), string(p.Key), string(p.RangeEnd)})
	}
	return out, nil
}

// RoleList returns the names of all roles.
func (a Auth) RoleList(ctx context.Context) ([]string, error) {
	r, err := ask[etcdserverpb.AuthRoleListResponse](ctx, a.c, &roleListMethod, "",
		&etcdserverpb.AuthRoleListRequest{})
	return r.GetRoles(), err
}

// RoleDelete deletes a role and takes it from its users.
func (a Auth) RoleDelete(ctx context.Context, role string) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthRoleDeleteResponse](ctx, a.c, &roleDeleteMethod, role,
		&etcdserverpb.AuthRoleDeleteRequest{Role: role}))
}

// RoleGrantPermission adds a permission to a role, or changes the type of the one that the role has
// for the same keys.
func (a Auth) RoleGrantPermission(ctx context.Context, role string, p Permission) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthRoleGrantPermissionResponse](ctx, a.c,
		&rolePermitMethod, role,
		&etcdserverpb.AuthRoleGrantPermissionRequest{Name: role, Perm: &authpb.Permission{
			PermType: authpb.Permission_Type(p.Type), Key: []byte(p.Key),
			RangeEnd: []byte(p.End)}}))
}

// RoleRevokePermission removes the permission that was granted for exactly this key and end.
func (a Auth) RoleRevokePermission(ctx context.Context, role, key, end string) (Header, error) {
	return headerOf(ask[etcdserverpb.AuthRoleRevokePermissionResponse](ctx, a.c,
		&roleForbidMethod, role,
		&etcdserverpb.AuthRoleRevokePermissionRequest{Role: role, Key: []byte(key),
			RangeEnd: []byte(end)}))
}
