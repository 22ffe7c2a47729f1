package fsm

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/store/history"
)

// The buckets of package auth's records.
const (
	authBucket byte = 'h'
	userBucket byte = 'u'
	roleBucket byte = 'o'
)

var authBuckets = [...]byte{auth.TableSettings: authBucket, auth.TableUsers: userBucket, auth.TableRoles: roleBucket}

// AuthMeta returns the meta records of users and roles, for a store that is built from a backup.
func AuthMeta(s *auth.State) []history.Meta { return authMeta(s.Records()) }

func authMeta(records []auth.Record) []history.Meta {
	out := make([]history.Meta, len(records))
	for i, r := range records {
		out[i] = history.Meta{Bucket: authBuckets[r.Table], Key: r.Key, Value: r.Value, Deleted: r.Deleted}
	}
	return out
}

// ReadAuth returns the users and roles in the meta records of a store.
func ReadAuth(meta []history.Meta) (*auth.State, error) {
	s, err := auth.Load(func(yield func(auth.Record) bool) {
		for _, m := range meta {
			for t, bucket := range authBuckets {
				if m.Bucket == bucket && !m.Deleted && !yield(auth.Record{Table: auth.Table(t), Key: m.Key, Value: m.Value}) {
					return
				}
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("fsm: %w", err)
	}
	return s, nil
}

// authority holds the users and roles of the machine.
type authority struct {
	state *auth.State
	// keys returns the keys of a lease, for the authorizer.
	keys auth.Keys
}

// Token is an issued token and its user.
type Token struct {
	Token string
	kv.Seen
}

func (a *authority) load(log *history.Log) (err error) {
	a.state, err = auth.Load(func(yield func(auth.Record) bool) {
		for t, bucket := range authBuckets {
			for k, v := range log.Meta(bucket) {
				if !yield(auth.Record{Table: auth.Table(t), Key: k, Value: v}) {
					return
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("fsm: %w", err)
	}
	return nil
}

// Auth returns users and roles, the open batch included. It is immutable.
func (m *Machine) Auth() *auth.State { return m.auth.state }

func (m *Machine) changeAuth(r *kv.AuthRequest) (*kv.AuthResult, *Token, error) {
	res := &kv.AuthResult{Revision: m.store.Revision()}
	if r.Op == kv.Authenticate {
		if err := m.auth.state.CheckAuthenticate(r); err != nil {
			return nil, nil, err
		}
		// The index makes it unique, and a member knows from it up to which entry it must apply to accept the token.
		res.Token = fmt.Sprintf("%s.%d", r.Token, m.leases.at.Index)
		seen, _ := m.auth.state.TokenHolder(r.User)
		return res, &Token{Token: res.Token, Seen: seen}, nil
	}
	next, records, err := m.auth.state.Change(r)
	if err != nil {
		return nil, nil, err
	}
	if err := m.store.SetMeta(authMeta(records)...); err != nil {
		return nil, nil, err
	}
	m.auth.state = next
	return res, nil, nil
}

func appendAuth(b []byte, r *kv.AuthRequest) []byte {
	b = append(b, byte(r.Op), flag(flagNoPassword, r.NoPassword))
	for _, s := range [...]string{r.User, r.Role, r.Hash, r.Token} {
		b = appendBytes(b, s)
	}
	b = binary.AppendUvarint(b, r.Revision)
	b = binary.AppendVarint(b, int64(r.Permission.Type))
	b = appendBytes(b, r.Permission.Key)
	return appendBytes(b, r.Permission.End)
}

func (d *Decoder) readAuth() {
	d.auth = kv.AuthRequest{Op: kv.AuthOp(d.byte()), NoPassword: d.flags(flagNoPassword) != 0,
		User: string(d.bytes()), Role: string(d.bytes()), Hash: string(d.bytes()), Token: string(d.bytes()), Revision: d.uvarint(),
		Permission: kv.Permission{Type: kv.PermissionType(d.enum()), Key: d.bytes(), End: d.bytes()}}
	if d.auth.Op < kv.AuthEnable || d.auth.Op > kv.RoleRevokePermission {
		d.fail()
	}
	d.req.Auth = &d.auth
}
