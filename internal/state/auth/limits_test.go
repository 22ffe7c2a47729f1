package auth

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vigil/internal/kv"
)

// Names and records are rejected above their limits and not below, for every proposer.
func TestLimits(t *testing.T) {
	long := strings.Repeat("n", kv.MaxNameBytes)
	s := mustChange(t, New(), append(role(long), user(long, long)...)...)
	for _, r := range []kv.AuthRequest{{Op: kv.UserAdd, User: long + "n"}, {Op: kv.RoleAdd, Role: long + "n"}} {
		if next, records, err := s.Change(&r); !errors.Is(err, kv.ErrNameTooLong) || next != s || records != nil {
			t.Errorf("op %d with a name of %d bytes: %v", r.Op, len(long)+1, err)
		}
	}
	if _, err := Restore(false, 1, []User{{Name: long + "n"}}, nil); !errors.Is(err, kv.ErrNameTooLong) {
		t.Errorf("a user of another store with a long name: %v", err)
	}
	if _, err := Restore(false, 1, nil, []Role{{Name: long + "n"}}); !errors.Is(err, kv.ErrNameTooLong) {
		t.Errorf("a role of another store with a long name: %v", err)
	}

	// Permissions are granted until the record of the role is full.
	key := func(i int) []byte { return []byte(strings.Repeat("k", 1<<20) + string(rune('a'+i))) }
	granted := 0
	for i := range 20 {
		r := kv.AuthRequest{Op: kv.RoleGrantPermission, Role: long, Permission: kv.Permission{Key: key(i)}}
		next, records, err := s.Change(&r)
		if err != nil {
			if !errors.Is(err, kv.ErrAuthRecordTooLarge) || next != s || records != nil {
				t.Fatalf("permission %d: %v", i, err)
			}
			continue
		}
		for _, rec := range records {
			if len(rec.Value) > kv.MaxAuthRecordBytes {
				t.Fatalf("a record of %d bytes is written", len(rec.Value))
			}
		}
		s = next
		granted++
	}
	if granted != 15 {
		t.Errorf("%d permissions of 1 MiB were granted, want 15", granted)
	}
	// What is full can be reduced.
	mustChange(t, s, kv.AuthRequest{Op: kv.RoleRevokePermission, Role: long, Permission: kv.Permission{Key: key(0)}})
}

// There are at most MaxUsers users and MaxRoles roles. A store that has more, from a backup, can be used and reduced.
func TestNumberOfUsersAndRoles(t *testing.T) {
	for _, more := range []int{0, 5} {
		var users []User
		var roles []Role
		for i := range kv.MaxUsers + more - 1 {
			users = append(users, User{Name: fmt.Sprint("u", i)})
		}
		for i := range kv.MaxRoles + more - 1 {
			roles = append(roles, Role{Name: fmt.Sprint("r", i)})
		}
		s, err := Restore(false, 1, users, roles)
		if err != nil {
			t.Fatal(err)
		}
		add := []kv.AuthRequest{{Op: kv.UserAdd, User: "new", NoPassword: true}, {Op: kv.RoleAdd, Role: "new"}}
		if more == 0 {
			s = mustChange(t, s, add...)
		}
		for i, want := range []error{kv.ErrTooManyUsers, kv.ErrTooManyRoles} {
			r := add[i]
			r.User, r.Role = r.User+"er", r.Role+"er"
			if next, records, err := s.Change(&r); !errors.Is(err, want) || next != s || records != nil {
				t.Errorf("op %d with %d users and %d roles: %v", r.Op, len(s.users), len(s.roles), err)
			}
		}
		mustChange(t, s, kv.AuthRequest{Op: kv.UserDelete, User: "u0"}, kv.AuthRequest{Op: kv.RoleDelete, Role: "r0"})
	}
}
