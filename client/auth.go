package client

import (
	"context"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client/internal/token"
	"vigil/client/internal/wire"
)

// AuthEnable turns authentication on. There must be a user root with the role root.
func (c *Client) AuthEnable(ctx context.Context) (*etcdserverpb.AuthEnableResponse, error) {
	return ask[etcdserverpb.AuthEnableResponse](ctx, c, &authEnableMethod, "", &etcdserverpb.AuthEnableRequest{})
}

// AuthDisable turns authentication off.
func (c *Client) AuthDisable(ctx context.Context) (*etcdserverpb.AuthDisableResponse, error) {
	return ask[etcdserverpb.AuthDisableResponse](ctx, c, &authDisableMethod, "", &etcdserverpb.AuthDisableRequest{})
}

// AuthStatus reports whether authentication is on.
func (c *Client) AuthStatus(ctx context.Context) (*etcdserverpb.AuthStatusResponse, error) {
	return ask[etcdserverpb.AuthStatusResponse](ctx, c, &authStatusMethod, "", &etcdserverpb.AuthStatusRequest{})
}

// Authenticate exchanges a password for a token. A client with Config.Username calls it itself.
func (c *Client) Authenticate(ctx context.Context, user, password string) (*etcdserverpb.AuthenticateResponse, error) {
	req := &wire.Generated{Message: &etcdserverpb.AuthenticateRequest{Name: user, Password: password}}
	return callWith[etcdserverpb.AuthenticateResponse](ctx, c, &authenticateMethod, user, req, token.NewCredential(token.Token{}))
}

// UserAdd adds a user with a password.
func (c *Client) UserAdd(ctx context.Context, user, password string) (*etcdserverpb.AuthUserAddResponse, error) {
	return ask[etcdserverpb.AuthUserAddResponse](ctx, c, &userAddMethod, user, &etcdserverpb.AuthUserAddRequest{
		Name: user, Password: password, Options: &authpb.UserAddOptions{}})
}

// UserAddNoPassword adds a user that authenticates only by a certificate.
func (c *Client) UserAddNoPassword(ctx context.Context, user string) (*etcdserverpb.AuthUserAddResponse, error) {
	return ask[etcdserverpb.AuthUserAddResponse](ctx, c, &userAddMethod, user, &etcdserverpb.AuthUserAddRequest{
		Name: user, Options: &authpb.UserAddOptions{NoPassword: true}})
}

// UserGet returns the roles of a user.
func (c *Client) UserGet(ctx context.Context, user string) (*etcdserverpb.AuthUserGetResponse, error) {
	return ask[etcdserverpb.AuthUserGetResponse](ctx, c, &userGetMethod, user, &etcdserverpb.AuthUserGetRequest{Name: user})
}

// UserList returns the names of all users.
func (c *Client) UserList(ctx context.Context) (*etcdserverpb.AuthUserListResponse, error) {
	return ask[etcdserverpb.AuthUserListResponse](ctx, c, &userListMethod, "", &etcdserverpb.AuthUserListRequest{})
}

// UserDelete deletes a user.
func (c *Client) UserDelete(ctx context.Context, user string) (*etcdserverpb.AuthUserDeleteResponse, error) {
	return ask[etcdserverpb.AuthUserDeleteResponse](ctx, c, &userDeleteMethod, user, &etcdserverpb.AuthUserDeleteRequest{Name: user})
}

// UserChangePassword changes the password of a user.
func (c *Client) UserChangePassword(ctx context.Context, user, password string) (*etcdserverpb.AuthUserChangePasswordResponse, error) {
	return ask[etcdserverpb.AuthUserChangePasswordResponse](ctx, c, &userPasswordMethod, user, &etcdserverpb.AuthUserChangePasswordRequest{Name: user, Password: password})
}

// UserGrantRole grants a role to a user.
func (c *Client) UserGrantRole(ctx context.Context, user, role string) (*etcdserverpb.AuthUserGrantRoleResponse, error) {
	return ask[etcdserverpb.AuthUserGrantRoleResponse](ctx, c, &userGrantMethod, user, &etcdserverpb.AuthUserGrantRoleRequest{User: user, Role: role})
}

// UserRevokeRole revokes a role of a user.
func (c *Client) UserRevokeRole(ctx context.Context, user, role string) (*etcdserverpb.AuthUserRevokeRoleResponse, error) {
	return ask[etcdserverpb.AuthUserRevokeRoleResponse](ctx, c, &userRevokeMethod, user, &etcdserverpb.AuthUserRevokeRoleRequest{Name: user, Role: role})
}

// RoleAdd adds a role without permissions.
func (c *Client) RoleAdd(ctx context.Context, role string) (*etcdserverpb.AuthRoleAddResponse, error) {
	return ask[etcdserverpb.AuthRoleAddResponse](ctx, c, &roleAddMethod, role, &etcdserverpb.AuthRoleAddRequest{Name: role})
}

// RoleGet returns the permissions of a role.
func (c *Client) RoleGet(ctx context.Context, role string) (*etcdserverpb.AuthRoleGetResponse, error) {
	return ask[etcdserverpb.AuthRoleGetResponse](ctx, c, &roleGetMethod, role, &etcdserverpb.AuthRoleGetRequest{Role: role})
}

// RoleList returns the names of all roles.
func (c *Client) RoleList(ctx context.Context) (*etcdserverpb.AuthRoleListResponse, error) {
	return ask[etcdserverpb.AuthRoleListResponse](ctx, c, &roleListMethod, "", &etcdserverpb.AuthRoleListRequest{})
}

// RoleDelete deletes a role, also from its users.
func (c *Client) RoleDelete(ctx context.Context, role string) (*etcdserverpb.AuthRoleDeleteResponse, error) {
	return ask[etcdserverpb.AuthRoleDeleteResponse](ctx, c, &roleDeleteMethod, role, &etcdserverpb.AuthRoleDeleteRequest{Role: role})
}

// RoleGrantPermission lets a role read, write or both: a key, or the range up to end, or all keys from key on if end is
// "\x00"; see PrefixEnd. The namespace of the client is not put before them.
func (c *Client) RoleGrantPermission(ctx context.Context, role, key, end string, permission authpb.Permission_Type) (*etcdserverpb.AuthRoleGrantPermissionResponse, error) {
	return ask[etcdserverpb.AuthRoleGrantPermissionResponse](ctx, c, &rolePermitMethod, role, &etcdserverpb.AuthRoleGrantPermissionRequest{
		Name: role, Perm: &authpb.Permission{PermType: permission, Key: []byte(key), RangeEnd: []byte(end)}})
}

// RoleRevokePermission revokes the permission that was granted for exactly this key and end.
func (c *Client) RoleRevokePermission(ctx context.Context, role, key, end string) (*etcdserverpb.AuthRoleRevokePermissionResponse, error) {
	return ask[etcdserverpb.AuthRoleRevokePermissionResponse](ctx, c, &roleForbidMethod, role, &etcdserverpb.AuthRoleRevokePermissionRequest{
		Role: role, Key: []byte(key), RangeEnd: []byte(end)})
}
