package auth

import (
	"iter"
	"slices"

	"vigil/internal/kv"
)

// Identity is on whose behalf a request is made. The zero value is nobody.
type Identity struct {
	// User is the name of the user, who may not exist.
	User string
	// Revision is the auth revision at which the user was identified.
	Revision uint64
}

// Keys returns the keys that are attached to a lease, in any order; none if there is no such lease.
type Keys func(lease int64) iter.Seq[string]

// Admin says why an identity may not do what only the role root may. Errors: kv.ErrUserEmpty,
// kv.ErrUserNotFound, kv.ErrAuthOldRevision, kv.ErrPermissionDenied.
func (s *State) Admin(id Identity) error {
	if !s.enabled {
		return nil
	}
	a := s.users[id.User]
	switch {
	case id.User == "":
		return kv.ErrUserEmpty
	case a == nil:
		return kv.ErrUserNotFound
	case !s.Current(id):
		return kv.ErrAuthOldRevision
	case !a.root:
		return kv.ErrPermissionDenied
	}
	return nil
}

// allowed says why an identity may not read or write the keys of [key, end). Errors: kv.ErrUserEmpty,
// kv.ErrAuthOldRevision, kv.ErrPermissionDenied.
func (s *State) allowed(id Identity, key, end []byte, of func(*account) ranges) error {
	if !s.enabled {
		return nil
	}
	a := s.users[id.User]
	switch {
	case id.Revision == 0:
		return kv.ErrUserEmpty
	case id.Revision < s.revision:
		return kv.ErrAuthOldRevision
	case a == nil:
		return kv.ErrPermissionDenied
	case a.root || of(a).covers(key, end):
		return nil
	}
	return kv.ErrPermissionDenied
}

func readable(a *account) ranges  { return a.read }
func writeable(a *account) ranges { return a.write }

// Read says why an identity may not read the keys of [key, end). Errors: kv.ErrUserEmpty,
// kv.ErrAuthOldRevision, kv.ErrPermissionDenied.
func (s *State) Read(id Identity, key, end []byte) error {
	return s.allowed(id, key, end, readable)
}

// Write is Read for writing, and so for deleting.
func (s *State) Write(id Identity, key, end []byte) error {
	return s.allowed(id, key, end, writeable)
}

// Put says why an identity may not put a key. Who attaches a key to a lease must be allowed to write all
// keys of the lease: they come to have one fate. Errors: as Read.
func (s *State) Put(id Identity, r *kv.PutRequest, keys Keys) error {
	if err := s.Write(id, r.Key, nil); err != nil {
		return err
	}
	if r.Lease != 0 {
		if err := s.WriteLease(id, r.Lease, keys); err != nil {
			return err
		}
	}
	if r.PrevKV {
		return s.Read(id, r.Key, nil)
	}
	return nil
}

// DeleteRange says why an identity may not delete a range. Errors: as Read.
func (s *State) DeleteRange(id Identity, r *kv.DeleteRangeRequest) error {
	if err := s.Write(id, r.Key, r.End); err != nil {
		return err
	}
	if r.PrevKV {
		return s.Read(id, r.Key, r.End)
	}
	return nil
}

// Txn says why an identity may not run a transaction: everything that it holds must be allowed, whichever
// branch will run. Errors: as Read.
func (s *State) Txn(id Identity, r *kv.TxnRequest, keys Keys) error {
	for i := range r.Compare {
		if err := s.Read(id, r.Compare[i].Key, r.Compare[i].End); err != nil {
			return err
		}
	}
	for _, ops := range [2][]kv.Op{r.Success, r.Failure} {
		for i := range ops {
			if err := s.op(id, &ops[i], keys); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *State) op(id Identity, op *kv.Op, keys Keys) error {
	switch {
	case op.Range != nil:
		return s.Read(id, op.Range.Key, op.Range.End)
	case op.Put != nil:
		return s.Put(id, op.Put, keys)
	case op.Delete != nil:
		return s.DeleteRange(id, op.Delete)
	case op.Txn != nil:
		return s.Txn(id, op.Txn, keys)
	}
	return nil // an operation that does nothing
}

// WriteLease says why an identity may not end a lease, or keep it: it must be allowed to write every key
// that is attached. Errors: as Read.
func (s *State) WriteLease(id Identity, lease int64, keys Keys) error {
	return s.lease(id, lease, keys, s.Write)
}

// ReadLease says why an identity may not see the keys of a lease. Errors: as Read.
func (s *State) ReadLease(id Identity, lease int64, keys Keys) error {
	return s.lease(id, lease, keys, s.Read)
}

func (s *State) lease(id Identity, lease int64, keys Keys, allowed func(Identity, []byte, []byte) error) error {
	if s.Admin(id) == nil {
		return nil
	}
	for k := range keys(lease) {
		if err := allowed(id, []byte(k), nil); err != nil {
			return err
		}
	}
	return nil
}

// ReadUser says why an identity may not look at a user: everyone may look at oneself. Errors: as Admin.
func (s *State) ReadUser(id Identity, name string) error {
	err := s.Admin(id)
	if name == id.User {
		return nil
	}
	return err
}

// ReadRole says why an identity may not look at a role: everyone may look at the roles one has. Errors: as
// Admin.
func (s *State) ReadRole(id Identity, name string) error {
	err := s.Admin(id)
	if a := s.users[id.User]; a != nil && slices.Contains(a.Roles, name) {
		return nil
	}
	return err
}
