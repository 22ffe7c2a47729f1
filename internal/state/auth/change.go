package auth

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"

	"vigil/internal/kv"
)

var errUnknownOp = errors.New("auth: unknown change")

// Change returns the state after r and the records that r writes, or s and the reason why r is
// rejected. It does not check whether the identity of r may make the change. Errors: kv's, in
// etcd's order.
func (s *State) Change(r *kv.AuthRequest) (*State, []Record, error) {
	next := *s
	c := change{State: &next}
	err := c.make(r)
	for i := range c.records {
		if err == nil && len(c.records[i].Value) > kv.MaxAuthRecordBytes {
			err = kv.ErrAuthRecordTooLarge
		}
	}
	if err != nil || !c.changed {
		return s, nil, err
	}
	if r.Op != kv.AuthEnable {
		c.revision++
	}
	return c.State, append(c.records, c.settings()), nil
}

// CheckAuthenticate returns why a token may not be issued: the user must exist with the password
// that was verified.
func (s *State) CheckAuthenticate(r *kv.AuthRequest) error {
	u := s.users[r.User]
	switch {
	case !s.enabled:
		return kv.ErrAuthNotEnabled
	case u == nil || u.NoPassword:
		return kv.ErrAuthFailed
	case r.Revision != s.revision:
		return kv.ErrAuthOldRevision
	}
	return nil
}

// change is a state under construction, and the records of changed users and roles.
type change struct {
	*State
	records []Record
	changed bool
}

func (c *change) make(r *kv.AuthRequest) error {
	switch r.Op {
	case kv.AuthEnable:
		return c.enable()
	case kv.AuthDisable:
		if c.enabled {
			c.enabled, c.disabled, c.changed = false, c.revision+1, true
		}
		return nil
	case kv.UserAdd:
		return c.addUser(r)
	case kv.UserDelete:
		return c.deleteUser(r)
	case kv.UserChangePassword:
		return c.changePassword(r)
	case kv.UserGrantRole:
		return c.grantRole(r)
	case kv.UserRevokeRole:
		return c.revokeRole(r)
	case kv.RoleAdd:
		switch {
		case r.Role == "":
			return kv.ErrRoleEmpty
		case len(r.Role) > kv.MaxNameBytes:
			return kv.ErrNameTooLong
		case c.roles[r.Role] != nil:
			return kv.ErrRoleExists
		case len(c.roles) >= kv.MaxRoles:
			return kv.ErrTooManyRoles
		}
		c.putRole(Role{Name: r.Role})
		return nil
	case kv.RoleDelete:
		return c.deleteRole(r)
	case kv.RoleGrantPermission:
		return c.grantPermission(r)
	case kv.RoleRevokePermission:
		return c.revokePermission(r)
	}
	return errUnknownOp
}

func (c *change) enable() error {
	root := c.users[RootUser]
	switch {
	case c.enabled:
		return nil
	case root == nil:
		return kv.ErrRootUserNotExist
	case !root.root:
		return kv.ErrRootRoleNotExist
	}
	c.enabled, c.changed = true, true
	return nil
}

func (c *change) putUser(u User) {
	c.setUser(u.Name, c.account(u))
	c.records, c.changed = append(c.records, u.record()), true
}

func (c *change) putRole(r Role) {
	c.setRole(r.Name, &r)
	c.records, c.changed = append(c.records, r.record()), true
}

// hash decodes the hash of a request.
func hash(r *kv.AuthRequest) ([]byte, error) {
	h, err := base64.StdEncoding.DecodeString(r.Hash)
	if err != nil {
		return nil, kv.ErrNoPasswordUser
	}
	return h, nil
}

func (c *change) addUser(r *kv.AuthRequest) (err error) {
	u := User{Name: r.User, NoPassword: r.NoPassword, Since: c.revision + 1}
	switch {
	case r.User == "":
		return kv.ErrUserEmpty
	case len(r.User) > kv.MaxNameBytes:
		return kv.ErrNameTooLong
	case c.users[r.User] != nil:
		return kv.ErrUserExists
	case len(c.users) >= kv.MaxUsers:
		return kv.ErrTooManyUsers
	case !r.NoPassword:
		if u.Hash, err = hash(r); err != nil {
			return err
		}
	}
	c.putUser(u)
	return nil
}

func (c *change) deleteUser(r *kv.AuthRequest) error {
	switch {
	case c.enabled && r.User == RootUser:
		return kv.ErrInvalidAuthMgmt
	case c.users[r.User] == nil:
		return kv.ErrUserNotFound
	}
	c.setUser(r.User, nil)
	c.records, c.changed = append(c.records,
		Record{Table: TableUsers, Key: []byte(r.User), Deleted: true}), true
	return nil
}

func (c *change) changePassword(r *kv.AuthRequest) (err error) {
	a := c.users[r.User]
	if a == nil {
		return kv.ErrUserNotFound
	}
	u := a.User
	u.Hash, u.Since = nil, c.revision+1
	if !u.NoPassword {
		if u.Hash, err = hash(r); err != nil {
			return err
		}
	}
	c.putUser(u)
	return nil
}

func (c *change) grantRole(r *kv.AuthRequest) error {
	a := c.users[r.User]
	switch {
	case a == nil:
		return kv.ErrUserNotFound
	case r.Role != RootRole && c.roles[r.Role] == nil:
		return kv.ErrRoleNotFound
	}
	u := a.User
	i, has := slices.BinarySearch(u.Roles, r.Role)
	if has {
		return nil
	}
	u.Roles = slices.Insert(slices.Clone(u.Roles), i, r.Role)
	c.putUser(u)
	return nil
}

func (c *change) revokeRole(r *kv.AuthRequest) error {
	if c.enabled && r.User == RootUser && r.Role == RootRole {
		return kv.ErrInvalidAuthMgmt
	}
	a := c.users[r.User]
	if a == nil {
		return kv.ErrUserNotFound
	}
	u := a.User
	i, has := slices.BinarySearch(u.Roles, r.Role)
	if !has {
		return kv.ErrRoleNotGranted
	}
	u.Roles = slices.Delete(slices.Clone(u.Roles), i, i+1)
	c.putUser(u)
	return nil
}

func (c *change) deleteRole(r *kv.AuthRequest) error {
	switch {
	case c.enabled && r.Role == RootRole:
		return kv.ErrInvalidAuthMgmt
	case c.roles[r.Role] == nil:
		return kv.ErrRoleNotFound
	}
	c.setRole(r.Role, nil)
	c.records, c.changed = append(c.records,
		Record{Table: TableRoles, Key: []byte(r.Role), Deleted: true}), true
	for _, u := range c.Users() {
		if i, has := slices.BinarySearch(u.Roles, r.Role); has {
			u.Roles = slices.Delete(slices.Clone(u.Roles), i, i+1)
			c.putUser(u)
		}
	}
	return nil
}

// grantPermission replaces the type of the role's permission for the range, if it is the first
// permission for its key; otherwise it adds one. So a role can have two permissions of different
// types for one range, and both are valid, as in etcd.
func (c *change) grantPermission(r *kv.AuthRequest) error {
	p := r.Permission
	if !validRange(p.Key, p.End) {
		return kv.ErrInvalidAuthMgmt
	}
	old := c.roles[r.Role]
	if old == nil {
		return kv.ErrRoleNotFound
	}
	next := Role{Name: r.Role, Permissions: slices.Clone(old.Permissions)}
	i, found := slices.BinarySearchFunc(next.Permissions, p.Key,
		func(p kv.Permission, key []byte) int { return bytes.Compare(p.Key, key) })
	if found && bytes.Equal(next.Permissions[i].End, p.End) {
		next.Permissions[i].Type = p.Type
	} else {
		for i < len(next.Permissions) && bytes.Equal(next.Permissions[i].Key, p.Key) {
			i++
		}
		// The request's bytes belong to the log.
		p.Key, p.End = bytes.Clone(p.Key), bytes.Clone(p.End)
		next.Permissions = slices.Insert(next.Permissions, i, p)
	}
	c.putRole(next)
	return nil
}

// validRange reports whether a permission for [key, end) is valid.
func validRange(key, end []byte) bool {
	return len(key) > 0 && (len(end) == 0 || openEnded(end) || bytes.Compare(key, end) < 0)
}

func (c *change) revokePermission(r *kv.AuthRequest) error {
	old := c.roles[r.Role]
	if old == nil {
		return kv.ErrRoleNotFound
	}
	next := Role{Name: r.Role,
		Permissions: slices.DeleteFunc(slices.Clone(old.Permissions), func(p kv.Permission) bool {
			return bytes.Equal(p.Key, r.Permission.Key) && bytes.Equal(p.End, r.Permission.End)
		})}
	if len(next.Permissions) == len(old.Permissions) {
		return kv.ErrPermissionNotGranted
	}
	c.putRole(next)
	return nil
}
