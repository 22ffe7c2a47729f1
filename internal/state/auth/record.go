package auth

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/state/record"
)

// Table is the kind of a record.
type Table uint8

// The tables of records.
const (
	// TableSettings has one record, under settingsKey: version u8 | flags u8: 1 enabled | revision
	// uvarint | disabled uvarint.
	TableSettings Table = iota
	// TableUsers has a record for each user under its name: version u8 | flags u8: 1 no password |
	// since uvarint | hash bytes | n uvarint, n role names.
	TableUsers
	// TableRoles has a record for each role under its name: version u8 | n uvarint, n times: type
	// uvarint | key bytes | end bytes.
	TableRoles
)

// Bytes and names are a uvarint length and the bytes; uvarints are encoding/binary's, in their
// shortest form.
const (
	recordVersion byte = 1

	flagEnabled    = 1 << 0
	flagNoPassword = 1 << 0
)

var settingsKey = []byte("auth")

// Record is one stored record of the state.
type Record struct {
	Table      Table
	Key, Value []byte
	Deleted    bool
}

// Records returns the records of the whole state: the settings, users and roles by name.
func (s *State) Records() []Record {
	out := []Record{s.settings()}
	for _, u := range s.Users() {
		out = append(out, u.record())
	}
	for _, r := range s.Roles() {
		out = append(out, r.record())
	}
	return out
}

func (s *State) settings() Record {
	flags := byte(0)
	if s.enabled {
		flags = flagEnabled
	}
	b := binary.AppendUvarint([]byte{recordVersion, flags}, s.revision)
	return Record{Table: TableSettings, Key: settingsKey,
		Value: binary.AppendUvarint(b, s.disabled)}
}

func (u *User) record() Record {
	flags := byte(0)
	if u.NoPassword {
		flags = flagNoPassword
	}
	b := binary.AppendUvarint([]byte{recordVersion, flags}, u.Since)
	b = record.AppendBytes(b, u.Hash)
	b = binary.AppendUvarint(b, uint64(len(u.Roles)))
	for _, r := range u.Roles {
		b = record.AppendBytes(b, r)
	}
	return Record{Table: TableUsers, Key: []byte(u.Name), Value: b}
}

func (r *Role) record() Record {
	b := binary.AppendUvarint([]byte{recordVersion}, uint64(len(r.Permissions)))
	for _, p := range r.Permissions {
		b = binary.AppendUvarint(b, uint64(uint32(p.Type)))
		b = record.AppendBytes(b, p.Key)
		b = record.AppendBytes(b, p.End)
	}
	return Record{Table: TableRoles, Key: []byte(r.Name), Value: b}
}

// Load returns the state of records, which may be in any order. Errors are kv.ErrCorrupt.
func Load(records func(yield func(Record) bool)) (*State, error) {
	s := New()
	var users []User
	for stored := range records {
		r := record.NewReader(stored.Value)
		valid := r.Byte() == recordVersion
		switch stored.Table {
		case TableSettings:
			flags := r.Byte()
			s.enabled, s.revision, s.disabled = flags&flagEnabled != 0, r.Uvarint(), r.Uvarint()
			valid = valid && flags&^flagEnabled == 0 && string(stored.Key) == string(settingsKey)
		case TableUsers:
			flags := r.Byte()
			u := User{Name: string(stored.Key), NoPassword: flags&flagNoPassword != 0,
				Since: r.Uvarint(), Hash: readBytes(r)}
			for range r.Count() {
				u.Roles = append(u.Roles, r.Text())
			}
			valid = valid && flags&^flagNoPassword == 0 && slices.IsSorted(u.Roles) &&
				len(slices.Compact(slices.Clone(u.Roles))) == len(u.Roles)
			users = append(users, u)
		case TableRoles:
			role := &Role{Name: string(stored.Key)}
			for range r.Count() {
				role.Permissions = append(role.Permissions,
					kv.Permission{Type: readPermissionType(r), Key: readBytes(r),
						End: readBytes(r)})
			}
			valid = valid && slices.IsSortedFunc(role.Permissions, byKey)
			s.roles[role.Name] = role
		default:
			valid = false
		}
		if !valid || !r.Complete() {
			return nil, fmt.Errorf("auth: %w: record %d of %d bytes under %q", kv.ErrCorrupt,
				stored.Table, len(stored.Value), stored.Key)
		}
	}
	for _, u := range users {
		s.users[u.Name] = s.account(u)
	}
	if err := s.valid(); err != nil {
		return nil, fmt.Errorf("auth: %w: %w", kv.ErrCorrupt, err)
	}
	return s, nil
}

func readPermissionType(r *record.Reader) kv.PermissionType {
	v := r.Uvarint()
	if v > math.MaxUint32 {
		r.Fail()
	}
	return kv.PermissionType(uint32(v))
}

// readBytes returns nil for empty bytes.
func readBytes(r *record.Reader) []byte {
	if s := r.Text(); s != "" {
		return []byte(s)
	}
	return nil
}
