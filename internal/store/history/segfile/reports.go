package segfile

import "vigil/internal/vfs"

// reportQueue is how many reports of damage wait for their receiver. Further ones are dropped: the
// alarm is the same.
const reportQueue = 16

// Reports carry damage that no call returned to a reader. The zero value is not valid.
type Reports struct{ damage chan error }

// NewReports returns Reports without any.
func NewReports() Reports { return Reports{make(chan error, reportQueue)} }

// Damage yields damage that background work met: reclaim, the marking of dead records, a
// compaction. The log goes on; its owner counts the damage and raises the alarm.
func (r Reports) Damage() <-chan error { return r.damage }

// ReportDamage reports err on Damage if it is damage. It is for background work, which has no
// caller to return it to.
func (r Reports) ReportDamage(err error) {
	if !vfs.Unreadable(err) {
		return
	}
	select {
	case r.damage <- err:
	default:
	}
}
