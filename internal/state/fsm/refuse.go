package fsm

import (
	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

// refusal returns the error of a request that has no effect whatever it asks for: the active alarms forbid it, its
// identity may not make it, or it comes from a leader of another term. It depends on the state and the entry only.
//
// What a request of this identity may not change is refused after that, before anything is changed, by the owner of
// the data:
//
//	put, delete, transaction, compaction   mvcc.Writer: the limits of the store, leases, keys and revisions
//	grant of a lease                       lease.State.Grant
//	alarm, version                         Machine.changeAlarm, changeVersion
//	users and roles, tokens                auth.State.Change, auth.State.CheckAuthenticate
//	membership                             cluster.State.Change, and raft's configuration by nextConf
func (m *Machine) refusal(proposer uint64, r *Request) error {
	if len(m.alarms) > 0 {
		if err := refusedByAlarm(m.alarms, proposer, r); err != nil {
			return err
		}
	}
	if err := Authorize(m.auth.state, r.Identity, r, m.auth.keys); err != nil {
		return err
	}
	// What only a leader may ask for counts in the term of that leader.
	term := m.leases.at.Term
	if r.LeaseCheckpoint != nil && r.LeaseCheckpoint.Term != term || r.LeaseExpire != nil && r.LeaseExpire.Term != term {
		return kv.ErrLeaderChanged
	}
	return nil
}

// refusedByAlarm returns the error of a request that the active alarms forbid, nil if they do not.
//
// While any member is short of space nothing may be added. CORRUPT stops the member that it names: what
// that member proposes may rest on damaged data. An alarm of member 0 says that members differ and that it is not
// known which of them is wrong; it stops none.
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

// Authorize says why auth forbids somebody a request. What members ask for and not
// clients, and what is for root alone or for everyone and touches no keys, was checked before it was
// proposed if it had to be.
func Authorize(s *auth.State, id auth.Identity, r *Request, keys auth.Keys) error {
	if !s.Enabled() {
		return nil
	}
	switch r.Kind() {
	case KindPut:
		return s.CheckPut(id, r.Put, keys)
	case KindDeleteRange:
		return s.CheckDeleteRange(id, r.DeleteRange)
	case KindTxn:
		return s.CheckTxn(id, r.Txn, keys)
	case KindLeaseRevoke:
		if id == (auth.Identity{}) {
			return kv.ErrUserEmpty
		}
		return s.CheckWriteLease(id, r.LeaseRevoke.ID, keys)
	case KindAuth:
		if r.NeedsIdentity() {
			return s.CheckAdmin(id)
		}
		return nil
	case KindCompact, KindLeaseGrant, KindLeaseCheckpoint, KindLeaseExpire, KindAttributes, KindAlarm, KindVersion:
		return nil
	}
	return kv.ErrPermissionDenied
}
