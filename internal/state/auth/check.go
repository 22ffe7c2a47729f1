package auth

import (
	"iter"
	"slices"

	"vigil/internal/kv"
)

// Identity says in whose name a request is made. The zero value means nobody.
type Identity struct {
	// User is the name of the user, which may not exist.
	User string
	// Revision is the auth revision at which the user was identified.
	Revision uint64
	// Member is set for a request that a member of the cluster makes by itself. Such a request has
	// no user. It may do whatever requires the role root, and has no right to keys.
	Member bool
}

// Keys returns the keys that are attached to a lease, in any order; none if there is no such lease.
type Keys func(lease int64) iter.Seq[string]

// CheckAdmin returns why an identity may not do what requires the role root. Errors:
// kv.ErrUserEmpty, kv.ErrUserNotFound, kv.ErrAuthOldRevision, kv.ErrPermissionDenied.
func (s *State) CheckAdmin(id Identity) error {
	if !s.enabled || id.Member {
		return nil
	}
	a := s.users[id.User]
	switch {
	case id.User == "":
		return kv.ErrUserEmpty
	case a == nil:
		return kv.ErrUserNotFound
	case !s.IsCurrent(id):
		return kv.ErrAuthOldRevision
	case !a.root:
		return kv.ErrPermissionDenied
	}
	return nil
}

// CheckUser returns why an identity may not do what every user may. As in etcd, a certificate may
// name a user that does not exist; such an identity is valid until users or roles change. Errors:
// kv.ErrUserEmpty, kv.ErrAuthOldRevision.
func (s *State) CheckUser(id Identity) error {
	if !s.enabled || id.Member {
		return nil
	}
	switch known := s.users[id.User] != nil; {
	case id.Revision == 0:
		return kv.ErrUserEmpty
	case known && !s.IsCurrent(id), !known && id.Revision < s.revision:
		return kv.ErrAuthOldRevision
	}
	return nil
}

// allowed returns why an identity may not read or write the keys of [key, end). Errors:
// kv.ErrUserEmpty, kv.ErrAuthOldRevision, kv.ErrPermissionDenied.
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

// CheckRead returns why an identity may not read the keys of [key, end). Errors: kv.ErrUserEmpty,
// kv.ErrAuthOldRevision, kv.ErrPermissionDenied.
func (s *State) CheckRead(id Identity, key, end []byte) error {
	return s.allowed(id, key, end, readable)
}

// CheckWrite is CheckRead for writing and deleting.
func (s *State) CheckWrite(id Identity, key, end []byte) error {
	return s.allowed(id, key, end, writeable)
}

// CheckPut returns why an identity may not put a key. To attach a key to a lease, the identity must
// be allowed to write all keys of the lease, which end together. Errors: as CheckRead.
func (s *State) CheckPut(id Identity, r *kv.PutRequest, keys Keys) error {
	if err := s.CheckWrite(id, r.Key, nil); err != nil {
		return err
	}
	if r.Lease != 0 {
		if err := s.CheckWriteLease(id, r.Lease, keys); err != nil {
			return err
		}
	}
	if r.PrevKV {
		return s.CheckRead(id, r.Key, nil)
	}
	return nil
}

// CheckDeleteRange returns why an identity may not delete a range. Errors: as CheckRead.
func (s *State) CheckDeleteRange(id Identity, r *kv.DeleteRangeRequest) error {
	if err := s.CheckWrite(id, r.Key, r.End); err != nil {
		return err
	}
	if r.PrevKV {
		return s.CheckRead(id, r.Key, r.End)
	}
	return nil
}

// CheckTxn returns why an identity may not run a transaction: all operations of both branches must
// be allowed. Errors: as CheckRead.
func (s *State) CheckTxn(id Identity, r *kv.TxnRequest, keys Keys) error {
	for i := range r.Compare {
		if err := s.CheckRead(id, r.Compare[i].Key, r.Compare[i].End); err != nil {
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
		return s.CheckRead(id, op.Range.Key, op.Range.End)
	case op.Put != nil:
		return s.CheckPut(id, op.Put, keys)
	case op.Delete != nil:
		return s.CheckDeleteRange(id, op.Delete)
	case op.Txn != nil:
		return s.CheckTxn(id, op.Txn, keys)
	}
	return nil // an operation that does nothing
}

// CheckEndLease returns why an identity may not revoke a lease or keep it alive. Errors: as
// CheckUser and CheckWriteLease.
func (s *State) CheckEndLease(id Identity, lease int64, keys Keys) error {
	if err := s.CheckUser(id); err != nil {
		return err
	}
	return s.CheckWriteLease(id, lease, keys)
}

// CheckWriteLease returns why an identity may not attach a key to a lease: it must be allowed to
// write every attached key. Errors: as CheckRead.
func (s *State) CheckWriteLease(id Identity, lease int64, keys Keys) error {
	return s.lease(id, lease, keys, s.CheckWrite)
}

// CheckReadLease returns why an identity may not see the keys of a lease. Errors: as CheckRead.
func (s *State) CheckReadLease(id Identity, lease int64, keys Keys) error {
	return s.lease(id, lease, keys, s.CheckRead)
}

func (s *State) lease(id Identity, lease int64, keys Keys,
	allowed func(Identity, []byte, []byte) error) error {
	if s.CheckAdmin(id) == nil {
		return nil
	}
	for k := range keys(lease) {
		if err := allowed(id, []byte(k), nil); err != nil {
			return err
		}
	}
	return nil
}

// CheckReadUser returns why an identity may not read a user: every user may read itself. Errors: as
// CheckAdmin.
func (s *State) CheckReadUser(id Identity, name string) error {
	err := s.CheckAdmin(id)
	if name == id.User {
		return nil
	}
	return err
}

// CheckReadRole returns why an identity may not read a role: every user may read its own roles.
// Errors: as CheckAdmin.
func (s *State) CheckReadRole(id Identity, name string) error {
	err := s.CheckAdmin(id)
	if a := s.users[id.User]; a != nil && slices.Contains(a.Roles, name) {
		return nil
	}
	return err
}
