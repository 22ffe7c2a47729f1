package snapshot

import (
	"bytes"
	"fmt"

	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

// authority collects the users and roles of a file.
type authority struct {
	enabled  bool
	revision uint64
	users    []auth.User
	roles    []auth.Role
}

func (a *authority) state() (*auth.State, error) {
	return auth.Restore(a.enabled, a.revision, a.users, a.roles)
}

func userValue(u *auth.User) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(&authpb.User{Name: []byte(u.Name),
		Password: u.Hash,
		Roles:    u.Roles, Options: &authpb.UserAddOptions{NoPassword: u.NoPassword}})
}

func roleValue(r *auth.Role) ([]byte, error) {
	m := &authpb.Role{Name: []byte(r.Name)}
	for _, p := range r.Permissions {
		m.KeyPermission = append(m.KeyPermission, &authpb.Permission{
			PermType: authpb.Permission_Type(p.Type), Key: p.Key, RangeEnd: p.End})
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// addUser adds a user, which is stored under its name.
func (a *authority) addUser(key, value []byte) error {
	var m authpb.User
	if err := proto.Unmarshal(value, &m); err != nil {
		return err
	}
	if !bytes.Equal(m.Name, key) {
		return fmt.Errorf("it is of %q", m.Name)
	}
	a.users = append(a.users,
		auth.User{Name: string(m.Name), Hash: m.Password, Roles: m.Roles,
			NoPassword: m.Options.GetNoPassword()})
	return nil
}

// addRole adds a role, which is stored under its name.
func (a *authority) addRole(key, value []byte) error {
	var m authpb.Role
	if err := proto.Unmarshal(value, &m); err != nil {
		return err
	}
	if !bytes.Equal(m.Name, key) {
		return fmt.Errorf("it is of %q", m.Name)
	}
	r := auth.Role{Name: string(m.Name)}
	for _, p := range m.KeyPermission {
		r.Permissions = append(r.Permissions,
			kv.Permission{Type: kv.PermissionType(p.PermType), Key: p.Key, End: p.RangeEnd})
	}
	a.roles = append(a.roles, r)
	return nil
}
