package fsm

// String returns what etcd calls such a request in the labels of its metrics.
func (k Kind) String() string {
	switch k {
	case KindPut:
		return "Put"
	case KindDeleteRange:
		return "DeleteRange"
	case KindTxn:
		return "Txn"
	case KindRange:
		return "Range"
	case KindCompact:
		return "Compaction"
	case KindLeaseGrant:
		return "LeaseGrant"
	case KindLeaseRevoke:
		return "LeaseRevoke"
	case KindLeaseCheckpoint:
		return "LeaseCheckpoint"
	case KindLeaseExpire:
		return "LeaseExpire"
	case KindAttributes:
		return "ClusterMemberAttrSet"
	case KindAlarm:
		return "Alarm"
	}
	return "Unknown"
}
