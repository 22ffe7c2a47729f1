package rpc

import (
	"context"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/kv"
)

// Auth is the part of the member that manages users. The context of each call has the credentials of the caller
// (kv.CredentialsOf), and the member rejects callers without the right. Errors are kv's.
type Auth interface {
	// AuthEnabled reports whether calls need credentials. It returns at once.
	AuthEnabled() bool
	// AuthChanged returns a channel that is closed at the next change of users or roles.
	AuthChanged() <-chan struct{}
	// User returns the name of the user who makes a call, empty if it is not known.
	User(context.Context) string
	// CheckUser rejects callers that are not identified, MayWatch callers that may not read a range now, both by what this member
	// knows. RequireUser rejects callers that are not identified, RequireAdmin callers without the role root, by what any member
	// knew at the time of the call.
	CheckUser(context.Context) error
	RequireUser(context.Context) error
	RequireAdmin(context.Context) error
	MayWatch(ctx context.Context, key, end []byte) error

	// Authenticate issues a token for a password. The contexts of Authenticate and HashPassword have the origin of the call
	// (kv.OriginOf): checks of passwords wait for each other.
	Authenticate(ctx context.Context, user, password string) (*kv.AuthResult, error)
	// HashPassword returns the hash of a new password.
	HashPassword(ctx context.Context, password string) (string, error)
	ChangeAuth(context.Context, *kv.AuthRequest) (*kv.AuthResult, error)

	AuthStatus(context.Context) (kv.AuthStatus, error)
	Users(context.Context) ([]string, error)
	Roles(context.Context) ([]string, error)
	UserRoles(ctx context.Context, user string) ([]string, error)
	RolePermissions(ctx context.Context, role string) ([]kv.Permission, error)
}

// authServer manages users and roles. A password leaves it as a hash only.
type authServer struct {
	svc *service
}

func (a *authServer) header() *etcdserverpb.ResponseHeader {
	return headerPB(a.svc.cfg.Member.Header())
}

// change makes a change and returns the head of the answer.
func (a *authServer) change(ctx context.Context, r kv.AuthRequest) (*etcdserverpb.ResponseHeader, error) {
	res, err := a.svc.cfg.Auth.ChangeAuth(ctx, &r)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return headerPB(a.svc.header(res.Revision)), nil
}

func (a *authServer) AuthEnable(ctx context.Context, _ *etcdserverpb.AuthEnableRequest) (*etcdserverpb.AuthEnableResponse, error) {
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.AuthEnable})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthEnableResponse{Header: h}, nil
}

func (a *authServer) AuthDisable(ctx context.Context, _ *etcdserverpb.AuthDisableRequest) (*etcdserverpb.AuthDisableResponse, error) {
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.AuthDisable})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthDisableResponse{Header: h}, nil
}

func (a *authServer) AuthStatus(ctx context.Context, _ *etcdserverpb.AuthStatusRequest) (*etcdserverpb.AuthStatusResponse, error) {
	s, err := a.svc.cfg.Auth.AuthStatus(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.AuthStatusResponse{Header: a.header(), Enabled: s.Enabled, AuthRevision: s.Revision}, nil
}

func (a *authServer) Authenticate(ctx context.Context, r *etcdserverpb.AuthenticateRequest) (*etcdserverpb.AuthenticateResponse, error) {
	password := r.Password
	r.Password = ""
	res, err := a.svc.cfg.Auth.Authenticate(withOrigin(ctx), r.Name, password)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.AuthenticateResponse{Header: headerPB(a.svc.header(res.Revision)), Token: res.Token}, nil
}

func (a *authServer) UserAdd(ctx context.Context, r *etcdserverpb.AuthUserAddRequest) (*etcdserverpb.AuthUserAddResponse, error) {
	if len(r.Name) > kv.MaxNameBytes {
		return nil, apierror.Status(kv.ErrNameTooLong)
	}
	req := kv.AuthRequest{Op: kv.UserAdd, User: r.Name, NoPassword: r.Options.GetNoPassword()}
	if !req.NoPassword {
		var err error
		if req.Hash, err = a.svc.cfg.Auth.HashPassword(withOrigin(ctx), r.Password); err != nil {
			return nil, apierror.Status(err)
		}
	}
	r.Password = ""
	h, err := a.change(ctx, req)
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthUserAddResponse{Header: h}, nil
}

// UserChangePassword takes a hash instead of a password too.
func (a *authServer) UserChangePassword(ctx context.Context, r *etcdserverpb.AuthUserChangePasswordRequest) (*etcdserverpb.AuthUserChangePasswordResponse, error) {
	req := kv.AuthRequest{Op: kv.UserChangePassword, User: r.Name, Hash: r.HashedPassword}
	if r.Password != "" {
		var err error
		if req.Hash, err = a.svc.cfg.Auth.HashPassword(withOrigin(ctx), r.Password); err != nil {
			return nil, apierror.Status(err)
		}
		r.Password = ""
	}
	h, err := a.change(ctx, req)
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthUserChangePasswordResponse{Header: h}, nil
}

func (a *authServer) UserDelete(ctx context.Context, r *etcdserverpb.AuthUserDeleteRequest) (*etcdserverpb.AuthUserDeleteResponse, error) {
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.UserDelete, User: r.Name})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthUserDeleteResponse{Header: h}, nil
}

func (a *authServer) UserGet(ctx context.Context, r *etcdserverpb.AuthUserGetRequest) (*etcdserverpb.AuthUserGetResponse, error) {
	roles, err := a.svc.cfg.Auth.UserRoles(ctx, r.Name)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.AuthUserGetResponse{Header: a.header(), Roles: roles}, nil
}

func (a *authServer) UserList(ctx context.Context, _ *etcdserverpb.AuthUserListRequest) (*etcdserverpb.AuthUserListResponse, error) {
	names, err := a.svc.cfg.Auth.Users(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.AuthUserListResponse{Header: a.header(), Users: names}, nil
}

func (a *authServer) UserGrantRole(ctx context.Context, r *etcdserverpb.AuthUserGrantRoleRequest) (*etcdserverpb.AuthUserGrantRoleResponse, error) {
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.UserGrantRole, User: r.User, Role: r.Role})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthUserGrantRoleResponse{Header: h}, nil
}

func (a *authServer) UserRevokeRole(ctx context.Context, r *etcdserverpb.AuthUserRevokeRoleRequest) (*etcdserverpb.AuthUserRevokeRoleResponse, error) {
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.UserRevokeRole, User: r.Name, Role: r.Role})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthUserRevokeRoleResponse{Header: h}, nil
}

func (a *authServer) RoleAdd(ctx context.Context, r *etcdserverpb.AuthRoleAddRequest) (*etcdserverpb.AuthRoleAddResponse, error) {
	if len(r.Name) > kv.MaxNameBytes {
		return nil, apierror.Status(kv.ErrNameTooLong)
	}
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.RoleAdd, Role: r.Name})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthRoleAddResponse{Header: h}, nil
}

func (a *authServer) RoleDelete(ctx context.Context, r *etcdserverpb.AuthRoleDeleteRequest) (*etcdserverpb.AuthRoleDeleteResponse, error) {
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.RoleDelete, Role: r.Role})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthRoleDeleteResponse{Header: h}, nil
}

func (a *authServer) RoleGet(ctx context.Context, r *etcdserverpb.AuthRoleGetRequest) (*etcdserverpb.AuthRoleGetResponse, error) {
	perms, err := a.svc.cfg.Auth.RolePermissions(ctx, r.Role)
	if err != nil {
		return nil, apierror.Status(err)
	}
	res := &etcdserverpb.AuthRoleGetResponse{Header: a.header()}
	for _, p := range perms {
		res.Perm = append(res.Perm, &authpb.Permission{PermType: authpb.Permission_Type(p.Type), Key: p.Key, RangeEnd: p.End})
	}
	return res, nil
}

func (a *authServer) RoleList(ctx context.Context, _ *etcdserverpb.AuthRoleListRequest) (*etcdserverpb.AuthRoleListResponse, error) {
	names, err := a.svc.cfg.Auth.Roles(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.AuthRoleListResponse{Header: a.header(), Roles: names}, nil
}

func (a *authServer) RoleGrantPermission(ctx context.Context, r *etcdserverpb.AuthRoleGrantPermissionRequest) (*etcdserverpb.AuthRoleGrantPermissionResponse, error) {
	if r.Perm == nil {
		if err := a.svc.cfg.Auth.RequireAdmin(ctx); err != nil {
			return nil, apierror.Status(err)
		}
		return nil, rpctypes.ErrGRPCPermissionNotGiven
	}
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.RoleGrantPermission, Role: r.Name,
		Permission: kv.Permission{Type: kv.PermissionType(r.Perm.PermType), Key: r.Perm.Key, End: r.Perm.RangeEnd}})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthRoleGrantPermissionResponse{Header: h}, nil
}

func (a *authServer) RoleRevokePermission(ctx context.Context, r *etcdserverpb.AuthRoleRevokePermissionRequest) (*etcdserverpb.AuthRoleRevokePermissionResponse, error) {
	h, err := a.change(ctx, kv.AuthRequest{Op: kv.RoleRevokePermission, Role: r.Role, Permission: kv.Permission{Key: r.Key, End: r.RangeEnd}})
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.AuthRoleRevokePermissionResponse{Header: h}, nil
}
