package timing

import (
	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// class is the label under which a Recorder counts requests: their kind or, for changes of users
// and roles, the operation.
type class uint8

const (
	// readTxn is a transaction that is not proposed.
	readTxn class = iota
	readRange
	put
	deleteRange
	txn
	compact
	leaseGrant
	leaseRevoke
	leaseCheckpoint
	leaseExpire
	attributes
	alarm
	unknown
	// authOps and the classes after it are the changes of users and roles, by their number.
	authOps

	classes = authOps + class(kv.LastAuthOp) + 1
)

// classNames are the labels in etcd's metrics. etcd revokes leases that expire.
var classNames = [classes]string{
	readTxn: "ReadonlyTxn", readRange: "Range", put: "Put", deleteRange: "DeleteRange", txn: "Txn",
	compact:    "Compaction",
	leaseGrant: "LeaseGrant", leaseRevoke: "LeaseRevoke", leaseCheckpoint: "LeaseCheckpoint",
	leaseExpire: "LeaseExpire",
	attributes:  "ClusterMemberAttrSet", alarm: "Alarm", unknown: "Unknown",
	authOps: "Unknown",

	authOps + class(kv.AuthEnable):           "AuthEnable",
	authOps + class(kv.AuthDisable):          "AuthDisable",
	authOps + class(kv.Authenticate):         "Authenticate",
	authOps + class(kv.UserAdd):              "AuthUserAdd",
	authOps + class(kv.UserDelete):           "AuthUserDelete",
	authOps + class(kv.UserChangePassword):   "AuthUserChangePassword",
	authOps + class(kv.UserGrantRole):        "AuthUserGrantRole",
	authOps + class(kv.UserRevokeRole):       "AuthUserRevokeRole",
	authOps + class(kv.RoleAdd):              "AuthRoleAdd",
	authOps + class(kv.RoleDelete):           "AuthRoleDelete",
	authOps + class(kv.RoleGrantPermission):  "AuthRoleGrantPermission",
	authOps + class(kv.RoleRevokePermission): "AuthRoleRevokePermission",
	authOps + class(kv.TokensEnd):            "TokensEnd",
}

var classOfKind = [...]class{
	fsm.KindPut: put, fsm.KindDeleteRange: deleteRange, fsm.KindTxn: txn, fsm.KindRange: readRange,
	fsm.KindCompact:    compact,
	fsm.KindLeaseGrant: leaseGrant, fsm.KindLeaseRevoke: leaseRevoke,
	fsm.KindLeaseCheckpoint: leaseCheckpoint, fsm.KindLeaseExpire: leaseExpire,
	fsm.KindAttributes: attributes, fsm.KindAlarm: alarm,
	fsm.KindAuth: authOps,
}

func classOf(r *fsm.Request) class {
	k := r.Kind()
	switch c := classOfKind[min(int(k), len(classOfKind)-1)]; {
	case c == authOps && r.Auth != nil:
		return min(authOps+class(r.Auth.Op), classes-1)
	case c == readTxn || c == authOps:
		return unknown // a kind that has no class
	default:
		return c
	}
}
