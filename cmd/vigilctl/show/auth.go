package show

import (
	"google.golang.org/protobuf/proto"

	"vigil/client"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// withHeader is an answer that has only a header.
type withHeader interface {
	proto.Message
	GetHeader() *etcdserverpb.ResponseHeader
}

// Done is the answer to a change of users or roles, with a text for the format simple.
func Done(r withHeader, format string, args ...any) Answer {
	return Answer{Value: r,
		Simple: func(p *Printer) { p.Printf(format+"\n", args...) },
		Fields: func(p *Printer) { p.header(r.GetHeader()) }}
}

// AuthStatus is the status of authentication.
func AuthStatus(r *etcdserverpb.AuthStatusResponse) Answer {
	return Answer{Value: r, Simple: func(p *Printer) {
		p.Printf("Authentication Status: %t\nAuthRevision: %d\n", r.GetEnabled(),
			r.GetAuthRevision())
	}}
}

// UserGet is the list of a user's roles.
func UserGet(user string, r *etcdserverpb.AuthUserGetResponse) Answer {
	return Answer{Value: r, Simple: func(p *Printer) {
		p.Printf("User: %s\nRoles:", user)
		for _, role := range r.GetRoles() {
			p.Printf(" %s", role)
		}
		p.Printf("\n")
	}}
}

// UserList is the list of all user names.
func UserList(r *etcdserverpb.AuthUserListResponse) Answer {
	return Answer{Value: r, Simple: names(r.GetUsers())}
}

// RoleList is the list of all role names.
func RoleList(r *etcdserverpb.AuthRoleListResponse) Answer {
	return Answer{Value: r, Simple: names(r.GetRoles()),
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			p.Printf("\"Roles\" :")
			for _, role := range r.GetRoles() {
				p.Printf(" %q", role)
			}
			p.Printf("\n")
		}}
}

func names(list []string) func(*Printer) {
	return func(p *Printer) {
		for _, n := range list {
			p.Printf("%s\n", n)
		}
	}
}

// rootRole has all permissions, but does not list them.
const rootRole = "root"

// RoleGet is the list of a role's permissions.
func RoleGet(role string, r *etcdserverpb.AuthRoleGetResponse) Answer {
	return Answer{Value: r,
		Simple: func(p *Printer) {
			p.Printf("Role %s\n", role)
			perms := r.GetPerm()
			if role == rootRole && perms == nil {
				perms = []*authpb.Permission{{PermType: authpb.Permission_READWRITE,
					RangeEnd: []byte{0}}}
			}
			for _, kind := range []struct {
				name string
				is   authpb.Permission_Type
			}{{"Read", authpb.Permission_READ}, {"Write", authpb.Permission_WRITE}} {
				p.Printf("KV %s:\n", kind.name)
				for _, perm := range perms {
					if perm.GetPermType() == kind.is ||
						perm.GetPermType() == authpb.Permission_READWRITE {
						p.Printf("\t%s\n", permitted(perm.GetKey(), perm.GetRangeEnd()))
					}
				}
			}
		},
		Fields: func(p *Printer) {
			p.header(r.GetHeader())
			for _, perm := range r.GetPerm() {
				p.Printf("\"PermType\" :  %s\n\"Key\" : %q\n\"RangeEnd\" : %q\n",
					perm.GetPermType(), perm.GetKey(), perm.GetRangeEnd())
			}
		}}
}

// permitted describes the keys of a permission.
func permitted(key, end []byte) string {
	if len(end) == 0 {
		return string(key)
	}
	text := interval(key, end)
	if len(key) > 0 && client.PrefixEnd(string(key)) == string(end) {
		text += " (prefix " + string(key) + ")"
	}
	return text
}

// interval describes a range.
func interval(key, end []byte) string {
	if string(end) == "\x00" {
		return "[" + string(key) + ", <open ended>"
	}
	return "[" + string(key) + ", " + string(end) + ")"
}

// Revoked is the answer to revoking a permission.
func Revoked(role string, key, end []byte,
	r *etcdserverpb.AuthRoleRevokePermissionResponse) Answer {
	if len(end) == 0 {
		return Done(r, "Permission of key %s is revoked from role %s", key, role)
	}
	return Done(r, "Permission of range %s is revoked from role %s", interval(key, end), role)
}
