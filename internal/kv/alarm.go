package kv

import (
	"cmp"
	"strconv"
)

// AlarmType is the kind of an alarm. The numbers are the API's, which also accepts numbers without
// a name.
type AlarmType int32

// The alarms with a name. In a request for alarms AlarmNone means all alarms.
const (
	AlarmNone AlarmType = iota
	AlarmNoSpace
	AlarmCorrupt
)

// String returns the API's name for a type, or its number.
func (t AlarmType) String() string {
	switch t {
	case AlarmNone:
		return "NONE"
	case AlarmNoSpace:
		return "NOSPACE"
	case AlarmCorrupt:
		return "CORRUPT"
	}
	return strconv.Itoa(int(t))
}

// Alarm is a problem of a member that the whole cluster knows.
type Alarm struct {
	MemberID uint64
	Type     AlarmType
}

// Compare orders alarms by type and then by member.
func (a Alarm) Compare(b Alarm) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.MemberID, b.MemberID))
}

// AlarmChange raises an alarm, or clears it.
type AlarmChange struct {
	Alarm Alarm
	Clear bool
}
