// Package keytext writes keys and values as text that is safe on a terminal: quoted for people, and
// as JSON for programs.
package keytext

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"vigil/client"
	"vigil/cmd/vigilctl/screen"
)

// JSON is a key or a value in JSON: a string if it is UTF-8, otherwise an object with the bytes in
// base64. Characters that a terminal may act on are written as \u escapes.
type JSON string

type jsonBytes struct {
	Base64 *string `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (k JSON) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(k)) {
		s := base64.StdEncoding.EncodeToString([]byte(k))
		return json.Marshal(jsonBytes{&s})
	}
	b, err := json.Marshal(string(k))
	if err != nil || bytes.IndexFunc(b, screen.Steers) < 0 {
		return b, err
	}
	out := make([]byte, 0, len(b)+16)
	for _, r := range string(b) {
		switch {
		case !screen.Steers(r):
			out = utf8.AppendRune(out, r)
		case r < 0x10000:
			out = fmt.Appendf(out, "\\u%04x", r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, "\\u%04x\\u%04x", high, low)
		}
	}
	return out, nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *JSON) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*k = JSON(s)
		return nil
	}
	var o jsonBytes
	if err := json.Unmarshal(b, &o); err != nil || o.Base64 == nil {
		return errors.New(`a key or value is a string or {"base64":"..."}`)
	}
	raw, err := base64.StdEncoding.DecodeString(*o.Base64)
	*k = JSON(raw)
	return err
}

// Lease is the ID of a lease in JSON: hexadecimal, as everywhere on the command line.
type Lease client.LeaseID

// MarshalText implements encoding.TextMarshaler.
func (l Lease) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", int64(l)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Lease) UnmarshalText(b []byte) error {
	id, err := strconv.ParseInt(string(b), 16, 64)
	*l = Lease(id)
	return err
}

// Metadata is a key-value pair without key and value.
type Metadata struct {
	CreateRevision int64 `json:"create_revision,omitempty"`
	ModRevision    int64 `json:"mod_revision,omitempty"`
	Version        int64 `json:"version,omitempty"`
	Lease          Lease `json:"lease,omitzero"`
}

// MetadataOf returns the metadata of a key-value pair.
func MetadataOf(kv client.KeyValue) Metadata {
	return Metadata{kv.CreateRevision, kv.ModRevision, kv.Version, Lease(kv.Lease)}
}
