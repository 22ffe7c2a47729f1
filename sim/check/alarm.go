package check

import (
	"fmt"
	"time"
)

// AlarmOp is a time in which an alarm NOSPACE was active: its request was called at Call and
// answered at Ret, and the request that cleared it was not called before Cleared. Rev is a revision
// that is not older than the alarm.
type AlarmOp struct {
	Call, Ret, Cleared time.Duration
	Rev                int64
}

func (o *AlarmOp) String() string {
	return fmt.Sprintf("alarm raised: called %v returned %v, not after revision %d, cleared after %v", o.Call, o.Ret, o.Rev, o.Cleared)
}

// CheckAlarms checks that no write which needs space, nor a lease, was made while an alarm NOSPACE
// was active: a revision that the first watcher received in that time may be older, an operation
// that was called and acknowledged in it is not. Neither is one that was called before, if its
// revision is later than the alarm.
func CheckAlarms(ops []Op, leases []LeaseOp, alarms []AlarmOp) Violations {
	var v Violations
	for n := range leases {
		o := &leases[n]
		if o.Outcome != Acked || o.Gone || o.Kind != Grant && o.Kind != Attach {
			continue
		}
		for i := range alarms {
			if a := &alarms[i]; (a.Ret < o.Call || a.Rev < o.Rev) && o.Ret < a.Cleared {
				v.Add("a lease took space in spite of an alarm: %v: %v", a, o)
			}
		}
	}
	for n := range ops {
		o := &ops[n]
		if o.Outcome != Acked || !o.Wrote() || o.Kind == Del {
			continue
		}
		for i := range alarms {
			if a := &alarms[i]; (a.Ret < o.Call || a.Rev < o.Rev) && o.Ret < a.Cleared {
				v.Add("a write was accepted in spite of an alarm: %v: %v", a, o)
			}
		}
	}
	return v
}
