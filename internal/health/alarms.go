package health

import (
	"regexp"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// alarmError matches an alarm in the errors of a status. An alarm without a member has no ID.
var alarmError = regexp.MustCompile(`^(?:memberID:\s*(\d+)\s+)?alarm:\s*(\w+)`)

// FindAlarms sets Alarms to the alarms that the statuses report. It uses the status of the leader,
// or all statuses if the leader does not answer; some members may lag. Listing the alarms of the
// cluster would wait for a quorum.
func (r *Round) FindAlarms() {
	r.Alarms = nil
	leader := r.Leader()
	led := slices.ContainsFunc(r.Readings,
		func(x Reading) bool { return leader != 0 && x.ID() == leader && !r.Foreign(&x) })
	for i := range r.Readings {
		if x := &r.Readings[i]; x.Status != nil && !r.Foreign(x) && (!led || x.ID() == leader) {
			r.addAlarms(x.Status)
		}
	}
}

// maxAlarms limits the alarms that members report.
const maxAlarms = 64

// addAlarms adds the alarms that a status reports.
func (r *Round) addAlarms(st *etcdserverpb.StatusResponse) {
	for _, text := range st.GetErrors() {
		s := alarmError.FindStringSubmatch(text)
		if s == nil || len(r.Alarms) == maxAlarms {
			continue
		}
		// digits or nothing; a number that is too large matches no member
		id, _ := strconv.ParseUint(s[1], 10, 64)
		a := &etcdserverpb.AlarmMember{MemberID: id,
			Alarm: etcdserverpb.AlarmType(etcdserverpb.AlarmType_value[s[2]])}
		if !slices.ContainsFunc(r.Alarms,
			func(o *etcdserverpb.AlarmMember) bool {
				return o.MemberID == a.MemberID &&
					o.Alarm == a.Alarm
			}) {
			r.Alarms = append(r.Alarms, a)
		}
	}
}
