package kv

import (
	"cmp"
	"strconv"
)

// AlarmType says what is wrong with a member. The numbers are those of the API, which also takes
// numbers that it has no name for.
type AlarmType int32

// The alarms that have a name. AlarmNone stands for all of them where alarms are asked for.
const (
	AlarmNone AlarmType = iota
	AlarmNoSpace
	AlarmCorrupt
)

// String returns the name that the API has for a type, or its number.
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

// Alarm says that something is wrong with a member, which the whole cluster knows.
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
