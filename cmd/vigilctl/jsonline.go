package main

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

// jsonKey is a key or a value in JSON: a string if it is UTF-8, otherwise an object with the bytes in base64.
// Characters that could steer a terminal are written as \u escapes.
type jsonKey string

type jsonBytes struct {
	Base64 *string `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (k jsonKey) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(k)) {
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
	s := base64.StdEncoding.EncodeToString([]byte(k))
	return json.Marshal(jsonBytes{&s})
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *jsonKey) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*k = jsonKey(s)
		return nil
	}
	var o jsonBytes
	if err := json.Unmarshal(b, &o); err != nil || o.Base64 == nil {
		return errors.New(`a key or value is a string or {"base64":"..."}`)
	}
	raw, err := base64.StdEncoding.DecodeString(*o.Base64)
	*k = jsonKey(raw)
	return err
}

// jsonLease is the id of a lease in JSON: hexadecimal, as everywhere on the command line.
type jsonLease client.LeaseID

// MarshalText implements encoding.TextMarshaler.
func (l jsonLease) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", int64(l)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *jsonLease) UnmarshalText(b []byte) error {
	id, err := strconv.ParseInt(string(b), 16, 64)
	*l = jsonLease(id)
	return err
}

// keyInfo is what is known of a key besides its value.
type keyInfo struct {
	CreateRevision int64     `json:"create_revision,omitempty"`
	ModRevision    int64     `json:"mod_revision,omitempty"`
	Version        int64     `json:"version,omitempty"`
	Lease          jsonLease `json:"lease,omitzero"`
}

func info(kv client.KeyValue) keyInfo {
	return keyInfo{kv.CreateRevision, kv.ModRevision, kv.Version, jsonLease(kv.Lease)}
}

// valueOf returns the value after a change, none of a key that is gone.
func valueOf(ev client.Event) *jsonKey {
	if ev.Type == client.Delete {
		return nil
	}
	v := jsonKey(ev.KV.Value)
	return &v
}
