package fsm

import (
	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

// refusal returns the error of a request that is rejected before its data are read: an active alarm forbids it, its
// identity is not authorized, or a leader of another term has proposed it. It depends on the state and the entry only.
//
// After that the owner of the data rejects what is invalid, before it changes anything:
//
//	put, delete, transaction, compaction   mvcc.Writer: the limits of the store, leases, keys and revisions
//	grant of a lease                       lease.State.Grant
//	alarm, version                         Machine.changeAlarm, changeVersion
//	times of revisions                     timeline.State.Add
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
	// Requests of a leader are valid only in its term.
	term := m.leases.at.Term
	if r.LeaseCheckpoint != nil && r.LeaseCheckpoint.Term != term || r.LeaseExpire != nil && r.LeaseExpire.Term != term ||
		r.Time != nil && r.Time.Term != term {
		return kv.ErrLeaderChanged
	}
	return nil
}

// refusedByAlarm returns the error of a request that the active alarms forbid, nil if they do not.
//
// While an alarm NOSPACE is active nothing may be added. CORRUPT stops the member that it names: its proposals may be
// based on damaged data. An alarm CORRUPT of member 0 means that members differ and it is not known which of them is
// wrong; it stops none.
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

// Authorize returns why an identity may not make a request. Requests of members, and requests without keys that are for
// root or for every user, were checked before they were proposed if necessary.
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
	case KindCompact, KindLeaseGrant, KindLeaseCheckpoint, KindLeaseExpire, KindAttributes, KindAlarm, KindVersion, KindTime:
		return nil
	}
	return kv.ErrPermissionDenied
}
