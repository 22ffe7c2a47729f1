package auth

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"vigil/internal/kv"
)

const (
	// RootUser is the user that auth requires, RootRole the role with all permissions.
	RootUser = "root"
	RootRole = "root"
)

// User is a user. Its slices are never modified.
type User struct {
	Name string
	// Hash is the bcrypt hash of the password. A user without Hash and without NoPassword cannot
	// authenticate.
	Hash []byte
	// NoPassword: the user authenticates by certificate only.
	NoPassword bool
	// Roles is sorted.
	Roles []string
	// Since is the auth revision at which the user was added or its password was set. Earlier
	// authentications are no longer valid.
	Since uint64
}

// Role is a role. Its slices are never modified.
type Role struct {
	Name string
	// Permissions is sorted by key. The role root has none and may do everything.
	Permissions []kv.Permission
}

func byKey(a, b kv.Permission) int { return bytes.Compare(a.Key, b.Key) }

// account is a user with the permissions of its roles.
type account struct {
	User
	root        bool
	read, write ranges
}

// State holds all users and roles. It is immutable.
type State struct {
	enabled bool
	// revision counts changes from 1.
	revision uint64
	// disabled is the revision at which auth was last disabled: earlier authentications are no
	// longer valid.
	disabled uint64
	users    map[string]*account
	roles    map[string]*Role
}

// New returns the state of a new cluster, without users and roles.
func New() *State {
	return &State{revision: 1, users: map[string]*account{}, roles: map[string]*Role{}}
}

// Restore returns a state with the users and roles of a backup. A user keeps roles that do not
// exist, as in etcd. Revision 0 means 1. A user without Since gets the revision of the state,
// because the time of its password is not known: earlier tokens become invalid.
func Restore(enabled bool, revision uint64, users []User, roles []Role) (*State, error) {
	s := New()
	s.enabled, s.revision = enabled, max(revision, 1)
	for _, r := range roles {
		if len(r.Name) > kv.MaxNameBytes {
			return nil, fmt.Errorf("auth: a role: %w", kv.ErrNameTooLong)
		}
		if s.roles[r.Name] != nil {
			return nil, fmt.Errorf("auth: two roles are called %q", r.Name)
		}
		r.Permissions = slices.Clone(r.Permissions)
		slices.SortStableFunc(r.Permissions, byKey)
		s.roles[r.Name] = &r
	}
	for _, u := range users {
		if len(u.Name) > kv.MaxNameBytes {
			return nil, fmt.Errorf("auth: a user: %w", kv.ErrNameTooLong)
		}
		if s.users[u.Name] != nil {
			return nil, fmt.Errorf("auth: two users are called %q", u.Name)
		}
		u.Since = cmp.Or(u.Since, s.revision)
		u.Roles = slices.Compact(slices.Sorted(slices.Values(u.Roles)))
		s.users[u.Name] = s.account(u)
	}
	return s, s.valid()
}

// Enabled reports whether auth is enabled.
func (s *State) Enabled() bool { return s.enabled }

// Revision returns the auth revision.
func (s *State) Revision() uint64 { return s.revision }

// Status returns both.
func (s *State) Status() kv.AuthStatus {
	return kv.AuthStatus{Enabled: s.enabled, Revision: s.revision}
}

// User returns a user.
func (s *State) User(name string) (User, bool) {
	if a := s.users[name]; a != nil {
		return a.User, true
	}
	return User{}, false
}

// TokenHolder returns a user as the holder of a token that is used now.
func (s *State) TokenHolder(name string) (kv.Seen, bool) {
	a := s.users[name]
	if a == nil {
		return kv.Seen{}, false
	}
	return kv.Seen{User: name, Since: a.Since, Disabled: s.disabled}, true
}

// SameUser reports whether the holder of a token is still the same user.
func (s *State) SameUser(seen kv.Seen) bool {
	now, ok := s.TokenHolder(seen.User)
	return ok && s.enabled && now == seen
}

// IsCurrent reports whether an identity is still valid: the user exists, and nobody has changed its
// password or disabled auth since then.
func (s *State) IsCurrent(id Identity) bool {
	a := s.users[id.User]
	return a != nil && id.Revision >= max(a.Since, s.disabled)
}

// Role returns a role. The role root has the permission to everything.
func (s *State) Role(name string) (Role, bool) {
	r := s.roles[name]
	switch {
	case r == nil:
		return Role{}, false
	case name == RootRole:
		return Role{Name: name,
			Permissions: []kv.Permission{{Type: kv.PermitReadWrite, Key: []byte{},
				End: []byte{0}}}}, true
	}
	return *r, true
}

// Users returns all users, by name.
func (s *State) Users() []User {
	out := make([]User, 0, len(s.users))
	for _, a := range s.users {
		out = append(out, a.User)
	}
	slices.SortFunc(out, func(a, b User) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Roles returns all roles with the permissions that were granted to them, by name.
func (s *State) Roles() []Role {
	out := make([]Role, 0, len(s.roles))
	for _, r := range s.roles {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Role) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// account computes the permissions of a user.
func (s *State) account(u User) *account {
	a := &account{User: u}
	_, a.root = slices.BinarySearch(u.Roles, RootRole)
	var read, write []span
	for _, name := range u.Roles {
		r := s.roles[name]
		if r == nil {
			continue
		}
		for _, p := range r.Permissions {
			if len(p.Key) == 0 {
				continue // cannot be granted, and is not a range
			}
			sp := spanOf(p.Key, p.End)
			if p.Type == kv.PermitRead || p.Type == kv.PermitReadWrite {
				read = append(read, sp)
			}
			if p.Type == kv.PermitWrite || p.Type == kv.PermitReadWrite {
				write = append(write, sp)
			}
		}
	}
	a.read, a.write = merge(read), merge(write)
	return a
}

// setUser replaces a user; nil removes it.
func (s *State) setUser(name string, a *account) {
	s.users = maps.Clone(s.users)
	if a == nil {
		delete(s.users, name)
	} else {
		s.users[name] = a
	}
}

// setRole replaces a role and updates the permissions of its users; nil removes the role.
func (s *State) setRole(name string, r *Role) {
	s.roles = maps.Clone(s.roles)
	if r == nil {
		delete(s.roles, name)
	} else {
		s.roles[name] = r
	}
	s.users = maps.Clone(s.users)
	for key, a := range s.users {
		if _, has := slices.BinarySearch(a.Roles, name); has {
			s.users[key] = s.account(a.User)
		}
	}
}

// valid reports the first invariant that s breaks.
func (s *State) valid() error {
	if s.revision == 0 {
		return errors.New("auth: the revision is 0")
	}
	if root := s.users[RootUser]; s.enabled && (root == nil || !root.root) {
		return errors.New("auth: enabled without a user root that has the role root")
	}
	return nil
}
