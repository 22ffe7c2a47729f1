// Package authapi implements the Auth service: users, roles and tokens. A password leaves it as a
// hash only.
package authapi

import (
	"context"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/kv"
)

// Users is the part of the member that manages users and roles. The context of each call has the
// credentials of the caller (kv.CredentialsOf), and the member rejects callers without the right.
// Errors are kv's.
type Users interface {
	// RequireAdmin rejects callers without the role root.
	RequireAdmin(context.Context) error
	// Authenticate issues a token for a password. The contexts of Authenticate and HashPassword
	// have the origin of the call (kv.OriginOf), because checks of passwords wait for each other.
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

// Member names the member in the headers of answers.
type Member interface{ Header() kv.Header }

// API implements the service.
type API struct {
	users  Users
	member Member
}

// New returns the service.
func New(users Users, member Member) *API { return &API{users, member} }

// Service lists the methods.
func (a *API) Service() gate.Service {
	return gate.Service{Name: pb.Auth_ServiceDesc.ServiceName, Methods: []gate.Endpoint{
		gate.Unary("AuthStatus", a.authStatus), gate.Unary("Authenticate", a.authenticate),
		gate.Unary("UserAdd", a.userAdd), gate.Unary("UserGet", a.userGet),
		gate.Unary("UserList", a.userList),
		gate.Unary("UserChangePassword", a.userChangePassword),
		gate.Unary("RoleAdd", a.roleAdd), gate.Unary("RoleGet", a.roleGet),
		gate.Unary("RoleList", a.roleList),
		gate.Unary("RoleGrantPermission", a.roleGrantPermission),

		changes(a, "AuthEnable",
			func(*pb.AuthEnableRequest) kv.AuthRequest { return kv.AuthRequest{Op: kv.AuthEnable} },
			func(h *pb.ResponseHeader) any { return &pb.AuthEnableResponse{Header: h} }),
		changes(a, "AuthDisable",
			func(*pb.AuthDisableRequest) kv.AuthRequest {
				return kv.AuthRequest{Op: kv.AuthDisable}
			},
			func(h *pb.ResponseHeader) any { return &pb.AuthDisableResponse{Header: h} }),
		changes(a, "UserDelete",
			func(r *pb.AuthUserDeleteRequest) kv.AuthRequest {
				return kv.AuthRequest{Op: kv.UserDelete, User: r.Name}
			},
			func(h *pb.ResponseHeader) any { return &pb.AuthUserDeleteResponse{Header: h} }),
		changes(a, "UserGrantRole",
			func(r *pb.AuthUserGrantRoleRequest) kv.AuthRequest {
				return kv.AuthRequest{Op: kv.UserGrantRole, User: r.User, Role: r.Role}
			},
			func(h *pb.ResponseHeader) any { return &pb.AuthUserGrantRoleResponse{Header: h} }),
		changes(a, "UserRevokeRole",
			func(r *pb.AuthUserRevokeRoleRequest) kv.AuthRequest {
				return kv.AuthRequest{Op: kv.UserRevokeRole, User: r.Name, Role: r.Role}
			},
			func(h *pb.ResponseHeader) any { return &pb.AuthUserRevokeRoleResponse{Header: h} }),
		changes(a, "RoleDelete",
			func(r *pb.AuthRoleDeleteRequest) kv.AuthRequest {
				return kv.AuthRequest{Op: kv.RoleDelete, Role: r.Role}
			},
			func(h *pb.ResponseHeader) any { return &pb.AuthRoleDeleteResponse{Header: h} }),
		changes(a, "RoleRevokePermission",
			func(r *pb.AuthRoleRevokePermissionRequest) kv.AuthRequest {
				return kv.AuthRequest{Op: kv.RoleRevokePermission, Role: r.Role,
					Permission: kv.Permission{Key: r.Key, End: r.RangeEnd}}
			},
			func(h *pb.ResponseHeader) any {
				return &pb.AuthRoleRevokePermissionResponse{Header: h}
			}),
	}}
}

// changes returns a method that makes one change: request translates its request, and answer makes
// the answer, which has only a header.
func changes[Request any](a *API, name string, request func(*Request) kv.AuthRequest,
	answer func(*pb.ResponseHeader) any) gate.Endpoint {
	return gate.Unary(name, func(ctx context.Context, r *Request) (any, error) {
		h, err := a.changeAuth(ctx, request(r))
		if err != nil {
			return nil, err
		}
		return answer(h), nil
	})
}

// changeAuth makes a change and returns the header of the answer.
func (a *API) changeAuth(ctx context.Context, r kv.AuthRequest) (*pb.ResponseHeader, error) {
	res, err := a.users.ChangeAuth(ctx, &r)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return a.headerAt(res.Revision), nil
}

// header returns the header of an answer.
func (a *API) header() *pb.ResponseHeader { return gate.Header(a.member.Header()) }

// headerAt returns the header of an answer that was made at a revision.
func (a *API) headerAt(revision int64) *pb.ResponseHeader {
	return gate.Header(a.member.Header().At(revision))
}

func (a *API) authStatus(ctx context.Context,
	_ *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	s, err := a.users.AuthStatus(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.AuthStatusResponse{Header: a.header(), Enabled: s.Enabled,
		AuthRevision: s.Revision}, nil
}

func (a *API) authenticate(ctx context.Context,
	r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	password := r.Password
	r.Password = ""
	res, err := a.users.Authenticate(withOrigin(ctx), r.Name, password)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.AuthenticateResponse{Header: a.headerAt(res.Revision), Token: res.Token}, nil
}

func (a *API) userAdd(ctx context.Context,
	r *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	if len(r.Name) > kv.MaxNameBytes {
		return nil, apierror.Status(kv.ErrNameTooLong)
	}
	req := kv.AuthRequest{Op: kv.UserAdd, User: r.Name, NoPassword: r.Options.GetNoPassword()}
	if !req.NoPassword {
		var err error
		if req.Hash, err = a.users.HashPassword(withOrigin(ctx), r.Password); err != nil {
			return nil, apierror.Status(err)
		}
	}
	r.Password = ""
	h, err := a.changeAuth(ctx, req)
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserAddResponse{Header: h}, nil
}

// userChangePassword also accepts a hash instead of a password.
func (a *API) userChangePassword(ctx context.Context,
	r *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	req := kv.AuthRequest{Op: kv.UserChangePassword, User: r.Name, Hash: r.HashedPassword}
	if r.Password != "" {
		var err error
		if req.Hash, err = a.users.HashPassword(withOrigin(ctx), r.Password); err != nil {
			return nil, apierror.Status(err)
		}
		r.Password = ""
	}
	h, err := a.changeAuth(ctx, req)
	if err != nil {
		return nil, err
	}
	return &pb.AuthUserChangePasswordResponse{Header: h}, nil
}

func (a *API) userGet(ctx context.Context,
	r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	roles, err := a.users.UserRoles(ctx, r.Name)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.AuthUserGetResponse{Header: a.header(), Roles: roles}, nil
}

func (a *API) userList(ctx context.Context,
	_ *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	names, err := a.users.Users(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.AuthUserListResponse{Header: a.header(), Users: names}, nil
}

func (a *API) roleAdd(ctx context.Context,
	r *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	if len(r.Name) > kv.MaxNameBytes {
		return nil, apierror.Status(kv.ErrNameTooLong)
	}
	h, err := a.changeAuth(ctx, kv.AuthRequest{Op: kv.RoleAdd, Role: r.Name})
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleAddResponse{Header: h}, nil
}

func (a *API) roleGet(ctx context.Context,
	r *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	perms, err := a.users.RolePermissions(ctx, r.Role)
	if err != nil {
		return nil, apierror.Status(err)
	}
	res := &pb.AuthRoleGetResponse{Header: a.header()}
	for _, p := range perms {
		res.Perm = append(res.Perm,
			&authpb.Permission{PermType: authpb.Permission_Type(p.Type), Key: p.Key,
				RangeEnd: p.End})
	}
	return res, nil
}

func (a *API) roleList(ctx context.Context,
	_ *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	names, err := a.users.Roles(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &pb.AuthRoleListResponse{Header: a.header(), Roles: names}, nil
}

func (a *API) roleGrantPermission(ctx context.Context,
	r *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	if r.Perm == nil {
		if err := a.users.RequireAdmin(ctx); err != nil {
			return nil, apierror.Status(err)
		}
		return nil, rpctypes.ErrGRPCPermissionNotGiven
	}
	h, err := a.changeAuth(ctx, kv.AuthRequest{Op: kv.RoleGrantPermission, Role: r.Name,
		Permission: kv.Permission{Type: kv.PermissionType(r.Perm.PermType), Key: r.Perm.Key,
			End: r.Perm.RangeEnd}})
	if err != nil {
		return nil, err
	}
	return &pb.AuthRoleGrantPermissionResponse{Header: h}, nil
}
