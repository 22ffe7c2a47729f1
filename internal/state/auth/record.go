package auth

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"vigil/internal/kv"
)

// Table is the kind of a record.
type Table uint8

// The tables of records.
const (
	// TableSettings has one record, under settingsKey: version u8 | flags u8: 1 enabled | revision
	// uvarint | disabled uvarint.
	TableSettings Table = iota
	// TableUsers has a record for each user under its name: version u8 | flags u8: 1 no password | since
	// uvarint | hash bytes | n uvarint, n role names.
	TableUsers
	// TableRoles has a record for each role under its name: version u8 | n uvarint, n times: type uvarint |
	// key bytes | end bytes.
	TableRoles
)

// Bytes and names are a uvarint length and the bytes; uvarints are those of encoding/binary in their
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
	return Record{Table: TableSettings, Key: settingsKey, Value: binary.AppendUvarint(b, s.disabled)}
}

func (u *User) record() Record {
	flags := byte(0)
	if u.NoPassword {
		flags = flagNoPassword
	}
	b := binary.AppendUvarint([]byte{recordVersion, flags}, u.Since)
	b = appendBytes(b, u.Hash)
	b = binary.AppendUvarint(b, uint64(len(u.Roles)))
	for _, r := range u.Roles {
		b = appendBytes(b, r)
	}
	return Record{Table: TableUsers, Key: []byte(u.Name), Value: b}
}

func (r *Role) record() Record {
	b := binary.AppendUvarint([]byte{recordVersion}, uint64(len(r.Permissions)))
	for _, p := range r.Permissions {
		b = binary.AppendUvarint(b, uint64(uint32(p.Type)))
		b = appendBytes(b, p.Key)
		b = appendBytes(b, p.End)
	}
	return Record{Table: TableRoles, Key: []byte(r.Name), Value: b}
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// Load returns the state of records, which may be in any order. Errors are kv.ErrCorrupt.
func Load(records func(yield func(Record) bool)) (*State, error) {
	s := New()
	var users []User
	for r := range records {
		d := reader{b: r.Value}
		if d.byte() != recordVersion {
			d.bad = true
		}
		switch r.Table {
		case TableSettings:
			flags := d.byte()
			s.enabled, s.revision, s.disabled = flags&flagEnabled != 0, d.uvarint(), d.uvarint()
			d.bad = d.bad || flags&^flagEnabled != 0 || string(r.Key) != string(settingsKey)
		case TableUsers:
			flags := d.byte()
			u := User{Name: string(r.Key), NoPassword: flags&flagNoPassword != 0, Since: d.uvarint(), Hash: d.bytes()}
			for range d.count() {
				u.Roles = append(u.Roles, string(d.bytes()))
			}
			d.bad = d.bad || flags&^flagNoPassword != 0 || !slices.IsSorted(u.Roles) || len(slices.Compact(slices.Clone(u.Roles))) != len(u.Roles)
			users = append(users, u)
		case TableRoles:
			role := &Role{Name: string(r.Key)}
			for range d.count() {
				role.Permissions = append(role.Permissions, kv.Permission{Type: d.permission(), Key: d.bytes(), End: d.bytes()})
			}
			d.bad = d.bad || !slices.IsSortedFunc(role.Permissions, byKey)
			s.roles[role.Name] = role
		default:
			d.bad = true
		}
		if d.bad || len(d.b) != 0 {
			return nil, fmt.Errorf("auth: %w: record %d of %d bytes under %q", kv.ErrCorrupt, r.Table, len(r.Value), r.Key)
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

// reader reads a record.
type reader struct {
	b   []byte
	bad bool
}

func (d *reader) fail() { d.bad, d.b = true, nil }

func (d *reader) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *reader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *reader) permission() kv.PermissionType {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail()
	}
	return kv.PermissionType(uint32(v))
}

// bytes returns a copy, nil for an empty slice.
func (d *reader) bytes() []byte {
	n := d.count()
	if n == 0 {
		return nil
	}
	v := slices.Clone(d.b[:n])
	d.b = d.b[n:]
	return v
}

// count reads a length of bytes, or of a list whose elements take at least one byte each.
func (d *reader) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}
