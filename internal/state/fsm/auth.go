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

var authBuckets = [...]byte{auth.TableSettings: authBucket, auth.TableUsers: userBucket,
	auth.TableRoles: roleBucket}

// AuthMeta returns the meta records of users and roles, for a store that is built from a backup.
func AuthMeta(s *auth.State) []history.Meta { return authMeta(s.Records()) }

func authMeta(records []auth.Record) []history.Meta {
	out := make([]history.Meta, len(records))
	for i, r := range records {
		out[i] = history.Meta{Bucket: authBuckets[r.Table], Key: r.Key, Value: r.Value,
			Deleted: r.Deleted}
	}
	return out
}

// ReadAuth returns the users and roles in the meta records of a store.
func ReadAuth(meta []history.Meta) (*auth.State, error) {
	s, err := auth.Load(func(yield func(auth.Record) bool) {
		for _, m := range meta {
			for t, bucket := range authBuckets {
				if m.Bucket == bucket && !m.Deleted &&
					!yield(auth.Record{Table: auth.Table(t), Key: m.Key, Value: m.Value}) {
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

// Token is an issued token and its user. A member that gets the token from a client recognizes the
// secret by its hash.
type Token struct {
	// Hash is the hash of its secret, Index the position in the log at which it was issued.
	Hash  string
	Index uint64
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

func (m *Machine) changeAuth(r *kv.AuthRequest, out *Outcome) (*kv.AuthResult, error) {
	res := &kv.AuthResult{Revision: m.store.Revision()}
	switch r.Op {
	case kv.Authenticate:
		if err := m.auth.state.CheckAuthenticate(r); err != nil {
			return nil, err
		}
		// The index tells a member up to which entry it must apply before it can accept the token.
		res.Index = m.leases.at.Index
		seen, _ := m.auth.state.TokenHolder(r.User)
		out.Token = &Token{Hash: r.TokenHash, Index: res.Index, Seen: seen}
		return res, nil
	case kv.TokensEnd:
		out.TokensEnd = r.Index // tokens are not part of this state
		return res, nil
	}
	next, records, err := m.auth.state.Change(r)
	if err != nil {
		return nil, err
	}
	if err := m.store.SetMeta(authMeta(records)...); err != nil {
		return nil, err
	}
	m.auth.state = next
	return res, nil
}

func appendAuth(b []byte, r *kv.AuthRequest) []byte {
	b = append(b, byte(r.Op), flag(flagNoPassword, r.NoPassword))
	for _, s := range [...]string{r.User, r.Role, r.Hash, r.TokenHash} {
		b = appendBytes(b, s)
	}
	number := r.Revision
	if r.Op == kv.TokensEnd {
		number = r.Index
	}
	b = binary.AppendUvarint(b, number)
	b = binary.AppendVarint(b, int64(r.Permission.Type))
	b = appendBytes(b, r.Permission.Key)
	return appendBytes(b, r.Permission.End)
}

func (d *Decoder) readAuth() {
	d.auth = kv.AuthRequest{Op: kv.AuthOp(d.byte()), NoPassword: d.flags(flagNoPassword) != 0,
		User: string(d.bytes()), Role: string(d.bytes()), Hash: string(d.bytes()),
		TokenHash: string(d.bytes()), Revision: d.uvarint(),
		Permission: kv.Permission{Type: kv.PermissionType(d.enum()), Key: d.bytes(),
			End: d.bytes()}}
	if d.auth.Op == kv.TokensEnd {
		d.auth.Index, d.auth.Revision = d.auth.Revision, 0
	}
	if d.auth.Op < kv.AuthEnable || d.auth.Op > kv.LastAuthOp {
		d.fail()
	}
	d.req.Auth = &d.auth
}
