package fsm

import (
	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

// refusal returns the error of a request that is rejected before its data are read: an active alarm
// forbids it, its identity is not authorized, it names an empty key, or a leader of another term
// has proposed it. It depends on the state and the entry only.
//
// After that the owner of the data rejects what is invalid, before it changes anything:
//
//	put, delete, transaction, compaction mvcc.Writer: limits of the store, leases, keys, revisions
//	grant of a lease                     lease.State.Grant
//	alarm, version                       Machine.changeAlarm, changeVersion
//	claims of terms, archives            lineage.State.Claim, Begin
//	users and roles, tokens              auth.State.Change, auth.State.CheckAuthenticate
//
// A change of the membership is an entry of its own: auth.State.CheckAdmin judges its identity,
// then cluster.State.Change and, for raft's configuration, nextConf.
func (m *Machine) refusal(proposer uint64, r *Request) error {
	if len(m.alarms) > 0 {
		if err := refusedByAlarm(m.alarms, proposer, r); err != nil {
			return err
		}
	}
	if err := Authorize(m.auth.state, r.Identity, r, m.auth.keys); err != nil {
		return err
	}
	if err := r.CheckKeys(); err != nil {
		return err
	}
	// Requests of a leader are valid only in its term.
	term := m.leases.at.Term
	if r.LeaseCheckpoint != nil &&
		r.LeaseCheckpoint.Term != term || r.LeaseExpire != nil && r.LeaseExpire.Term != term ||
		r.Claim != nil && r.Claim.Term != term {
		return kv.ErrLeaderChanged
	}
	return nil
}

// CheckKeys returns kv.ErrEmptyKey if r names no key where it must name one. Package rpc rejects
// such a request before it is proposed; this check is for requests that arrive another way, such as
// from a raft log of etcd.
func (r *Request) CheckKeys() error {
	if r.Put != nil && len(r.Put.Key) == 0 || r.DeleteRange != nil && len(r.DeleteRange.Key) == 0 ||
		r.Txn != nil && r.Txn.HasEmptyKey() {
		return kv.ErrEmptyKey
	}
	return nil
}

// refusedByAlarm returns the error of a request that the active alarms forbid, nil if they do not.
//
// While an alarm NOSPACE is active nothing may be added. CORRUPT stops the member that it names:
// its proposals may be based on damaged data. An alarm CORRUPT of member 0 means that members
// differ and it is not known which of them is wrong; it stops no member.
func refusedByAlarm(alarms []kv.Alarm, proposer uint64, r *Request) error {
	corrupt, noSpace := false, false
	for _, a := range alarms {
		corrupt = corrupt || a.Type == kv.AlarmCorrupt && a.MemberID == proposer
		noSpace = noSpace || a.Type == kv.AlarmNoSpace
	}
	switch {
	case corrupt && r.touchesKeys():
		return kv.ErrCorrupt
	case noSpace && r.Grows():
		return kv.ErrNoSpace
	}
	return nil
}

// Authorize returns why an identity may not make a request. It knows every kind, and denies a kind
// that it does not know.
func Authorize(s *auth.State, id auth.Identity, r *Request, keys auth.Keys) error {
	if !s.Enabled() || !r.NeedsIdentity() {
		return nil
	}
	switch r.Kind() {
	case KindPut:
		return s.CheckPut(id, r.Put, keys)
	case KindDeleteRange:
		return s.CheckDeleteRange(id, r.DeleteRange)
	case KindTxn:
		return s.CheckTxn(id, r.Txn, keys)
	case KindLeaseGrant:
		return s.CheckUser(id)
	case KindLeaseRevoke:
		return s.CheckEndLease(id, r.LeaseRevoke.ID, keys)
	case KindCompact, KindAlarm, KindVersion, KindAuth:
		return s.CheckAdmin(id)
	}
	return kv.ErrPermissionDenied
}
