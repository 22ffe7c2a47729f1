package archive

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Version is the version of the format that this program writes and reads.
const Version = 1

// MaxJSON limits the bytes of an object in JSON.
const MaxJSON = 64 << 20

var (
	// ErrDamaged: the bytes of an object differ from the written ones.
	ErrDamaged = errors.New("damaged")
	// ErrForeign: the object belongs to another archive, cluster or name.
	ErrForeign = errors.New("foreign")
	// ErrVersion: the object is in a version of the format that this program does not read.
	ErrVersion = errors.New("unknown version of the archive's format")
	// ErrKey: the object is encrypted, and no key fits.
	ErrKey = errors.New("encrypted, and no identity fits")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Hex64 is a number that JSON has as 16 hexadecimal digits.
type Hex64 uint64

// String returns the digits without leading zeros, as ids are printed.
func (h Hex64) String() string { return strconv.FormatUint(uint64(h), 16) }

// MarshalText implements encoding.TextMarshaler.
func (h Hex64) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex64) UnmarshalText(b []byte) error {
	n, ok := uint64(0), len(b) == 16
	if ok {
		n, ok = parseHex(string(b))
	}
	if !ok {
		return fmt.Errorf("%q is not a number of 16 hexadecimal digits", b)
	}
	*h = Hex64(n)
	return nil
}

// ID identifies an archive.
type ID [16]byte

// NewID returns a random id.
func NewID() (id ID) {
	_, _ = rand.Read(id[:])
	return id
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(b []byte) error {
	if n, err := hex.Decode(id[:], b[:min(len(b), 32)]); err != nil || n != 16 || len(b) != 32 {
		return fmt.Errorf("%q is not an id of 32 hexadecimal digits", b)
	}
	return nil
}

// Claim names the history that an object belongs to: a leader has claimed its term with a random id
// (package lineage). It stands for one history up to the entries of its term.
type Claim struct {
	Term Hex64 `json:"term"`
	ID   ID    `json:"id"`
}

// covers reports whether a claim says which entry of a term is meant.
func (c Claim) covers(term uint64) bool { return c.ID != ID{} && uint64(c.Term) >= term }

// Identity is the first object of an archive. A member writes it when the bucket has none; of two
// writers, one gets ErrExists and reads the other's.
type Identity struct {
	Format  string `json:"format"` // identityFormat
	Version int    `json:"version"`
	Archive ID     `json:"archive"`
	Cluster Hex64  `json:"cluster"`
	// Incarnation is the incarnation of the cluster: a cluster that was restored, wiped or forced
	// to be another cluster has the same id and another incarnation.
	Incarnation ID        `json:"incarnation"`
	Created     time.Time `json:"created"`
	// Recipients are the public keys of age to which all objects but those in JSON are encrypted;
	// none for no encryption.
	Recipients []string `json:"recipients,omitempty"`
	Checksum   string   `json:"checksum"`
}

const identityFormat = "vigil archive"

// NewIdentity returns the identity of a new archive.
func NewIdentity(cluster uint64, incarnation ID, created time.Time, recipients []string) Identity {
	return Identity{Format: identityFormat, Version: Version, Archive: NewID(),
		Cluster: Hex64(cluster), Incarnation: incarnation,
		Created: created.UTC().Truncate(time.Millisecond), Recipients: recipients}
}

// Encode returns the bytes of the object.
func (d *Identity) Encode() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return encodeJSON(d, &d.Checksum)
}

// DecodeIdentity decodes the object IdentityName.
func DecodeIdentity(b []byte) (Identity, error) {
	var d Identity
	if err := decodeJSON(b, &d, &d.Checksum, &d.Version); err != nil {
		return d, fmt.Errorf("%s: %w", IdentityName, err)
	}
	if err := d.check(); err != nil {
		return d, fmt.Errorf("%s: %w: %w", IdentityName, ErrDamaged, err)
	}
	return d, nil
}

func (d *Identity) check() error {
	switch {
	case d.Format != identityFormat:
		return fmt.Errorf("format %q", d.Format)
	case d.Archive == ID{} || d.Cluster == 0 || d.Incarnation == ID{}:
		return errors.New("the id of the archive, of the cluster or of its incarnation is missing")
	}
	_, err := parseRecipients(d.Recipients)
	return err
}

// encodeJSON encodes an object with its checksum: the SHA-256 of its bytes while the checksum is
// empty.
func encodeJSON(v any, checksum *string) ([]byte, error) {
	*checksum = ""
	plain, err := marshal(v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(plain)
	*checksum = hex.EncodeToString(sum[:])
	return marshal(v)
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// leastElement is the least number of bytes that an element of a list of an object takes: a member
// without a name.
const leastElement = 48

// crowded reports whether the lists of an object have so many elements that encodeJSON cannot have
// written them: decoded, each takes more than a hundred bytes of memory, even if it is empty.
func crowded(b []byte) bool {
	elements, depth, text := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 2:
			elements++
		}
	}
	return elements*leastElement > len(b)
}

// decodeJSON decodes an object into v, and accepts only the bytes that encodeJSON returns for it.
func decodeJSON(b []byte, v any, checksum *string, version *int) error {
	if len(b) > MaxJSON {
		return damaged("%d bytes, the most is %d", len(b), MaxJSON)
	}
	if crowded(b) {
		return damaged("its lists have more elements than bytes for them")
	}
	// Decode the version alone first: the fields of a newer version may have other types.
	var head struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(b, &head) == nil && head.Version > Version {
		return fmt.Errorf("%w: %d, this program reads %d", ErrVersion, head.Version, Version)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return damaged("%v", err)
	}
	if *version != Version {
		return damaged("version %d", *version)
	}
	again, err := encodeJSON(v, checksum)
	if err != nil {
		return damaged("%v", err)
	}
	if !bytes.Equal(again, b) {
		return damaged("the checksum does not match")
	}
	return nil
}
