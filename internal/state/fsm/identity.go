package fsm

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/state/auth"
)

// identityFlags returns the flag for the kind of an identity.
func identityFlags(id auth.Identity) byte {
	switch {
	case id.Member:
		return flagMember
	case id != (auth.Identity{}):
		return flagUser
	}
	return 0
}

// appendUser appends the user of an identity with flagUser: name bytes | auth revision uvarint. It
// appends nothing for other identities.
func appendUser(b []byte, id auth.Identity) []byte {
	if identityFlags(id) != flagUser {
		return b
	}
	b = appendBytes(b, id.User)
	return binary.AppendUvarint(b, id.Revision)
}

// readIdentity reverses identityFlags and appendUser.
func (d *Decoder) readIdentity(flags byte) (id auth.Identity, err error) {
	switch flags {
	case 0:
	case flagMember:
		id.Member = true
	case flagUser:
		if id = (auth.Identity{User: string(d.bytes()),
			Revision: d.uvarint()}); id == (auth.Identity{}) {
			err = fmt.Errorf("%w: empty identity", ErrFormat)
		}
	default:
		err = fmt.Errorf("%w: flags %x of an identity", ErrFormat, flags)
	}
	return id, err
}

// AppendIdentity appends an identity for another member: flags u8 as in a request, and the user.
func AppendIdentity(b []byte, id auth.Identity) []byte {
	return appendUser(append(b, identityFlags(id)), id)
}

// ParseIdentity decodes what AppendIdentity has appended, and returns the rest.
func ParseIdentity(b []byte) (id auth.Identity, rest []byte, err error) {
	d := Decoder{b: b}
	id, err = d.readIdentity(d.byte())
	if err == nil && d.bad {
		err = fmt.Errorf("%w: identity", ErrFormat)
	}
	return id, d.b, err
}
