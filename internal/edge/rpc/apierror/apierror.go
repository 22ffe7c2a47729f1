// Package apierror translates errors of the member into statuses of the API, with etcd's codes and
// texts. Its functions may be called concurrently.
package apierror

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
)

// table maps each error of the member to the status for clients. The first match counts.
var table = [...]struct{ from, to error }{
	{kv.ErrCompacted, rpctypes.ErrGRPCCompacted},
	{kv.ErrFutureRev, rpctypes.ErrGRPCFutureRev},
	{kv.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
	{kv.ErrLeaseExists, rpctypes.ErrGRPCLeaseExist},
	{kv.ErrLeaseTTLTooLarge, rpctypes.ErrGRPCLeaseTTLTooLarge},
	{kv.ErrEmptyKey, rpctypes.ErrGRPCEmptyKey},
	{kv.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound},
	{kv.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
	{kv.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests},
	{kv.ErrRequestTooLarge, rpctypes.ErrGRPCRequestTooLarge},
	{kv.ErrTimeoutLeaderFailure, rpctypes.ErrGRPCTimeoutDueToLeaderFail},
	{kv.ErrTimeoutConnectionLost, rpctypes.ErrGRPCTimeoutDueToConnectionLost},
	{kv.ErrTimeoutWaitApplied, rpctypes.ErrGRPCTimeoutWaitAppliedIndex},
	{kv.ErrTimeout, rpctypes.ErrGRPCTimeout},
	{kv.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
	{kv.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged},
	{kv.ErrStopped, rpctypes.ErrGRPCStopped},
	{kv.ErrNotLeader, rpctypes.ErrGRPCNotLeader},
	{kv.ErrUnhealthy, rpctypes.ErrGRPCUnhealthy},
	// etcd sends this one without its code.
	{kv.ErrNotEnoughStarted,
		status.Error(codes.Unknown, rpctypes.ErrMemberNotEnoughStarted.Error())},
	{kv.ErrMemberNotFound, rpctypes.ErrGRPCMemberNotFound},
	{kv.ErrMemberExists, rpctypes.ErrGRPCMemberExist},
	{kv.ErrPeerURLExists, rpctypes.ErrGRPCPeerURLExist},
	{kv.ErrNotLearner, rpctypes.ErrGRPCMemberNotLearner},
	{kv.ErrLearnerNotReady, rpctypes.ErrGRPCLearnerNotReady},
	{kv.ErrTooManyLearners, rpctypes.ErrGRPCTooManyLearners},
	{kv.ErrBadTransferee, rpctypes.ErrGRPCBadLeaderTransferee},
	// Not in etcd's table of statuses either.
	{kv.ErrTransferTimeout,
		status.Error(codes.Unknown,
			"etcdserver: request timed out, leader transfer took too long")},
	{kv.ErrCorrupt, rpctypes.ErrGRPCCorrupt},
	{kv.ErrPermissionDenied, rpctypes.ErrGRPCPermissionDenied},
	{kv.ErrInvalidAuthToken, rpctypes.ErrGRPCInvalidAuthToken},
	{kv.ErrAuthOldRevision, rpctypes.ErrGRPCAuthOldRevision},
	{kv.ErrAuthFailed, rpctypes.ErrGRPCAuthFailed},
	{kv.ErrAuthNotEnabled, rpctypes.ErrGRPCAuthNotEnabled},
	{kv.ErrUserEmpty, rpctypes.ErrGRPCUserEmpty},
	{kv.ErrUserExists, rpctypes.ErrGRPCUserAlreadyExist},
	{kv.ErrUserNotFound, rpctypes.ErrGRPCUserNotFound},
	{kv.ErrRoleEmpty, rpctypes.ErrGRPCRoleEmpty},
	{kv.ErrRoleExists, rpctypes.ErrGRPCRoleAlreadyExist},
	{kv.ErrRoleNotFound, rpctypes.ErrGRPCRoleNotFound},
	{kv.ErrRoleNotGranted, rpctypes.ErrGRPCRoleNotGranted},
	{kv.ErrPermissionNotGiven, rpctypes.ErrGRPCPermissionNotGiven},
	{kv.ErrPermissionNotGranted, rpctypes.ErrGRPCPermissionNotGranted},
	{kv.ErrRootUserNotExist, rpctypes.ErrGRPCRootUserNotExist},
	{kv.ErrRootRoleNotExist, rpctypes.ErrGRPCRootRoleNotExist},
	{kv.ErrInvalidAuthMgmt, rpctypes.ErrGRPCInvalidAuthMgmt},
	{kv.ErrNotCapable, rpctypes.ErrGRPCNotCapable},
	{kv.ErrNameTooLong, status.Error(codes.InvalidArgument, "vigil: "+kv.ErrNameTooLong.Error())},
	{kv.ErrAuthRecordTooLarge,
		status.Error(codes.ResourceExhausted, "vigil: "+kv.ErrAuthRecordTooLarge.Error())},
	{kv.ErrTooManyUsers,
		status.Error(codes.ResourceExhausted, "vigil: "+kv.ErrTooManyUsers.Error())},
	{kv.ErrTooManyRoles,
		status.Error(codes.ResourceExhausted, "vigil: "+kv.ErrTooManyRoles.Error())},
	// Not in etcd's table of statuses either.
	{kv.ErrNoPasswordUser,
		status.Error(codes.Unknown,
			"auth: authentication failed, password was given for no password user")},
	{kv.ErrDowngradeTarget, rpctypes.ErrGRPCInvalidDowngradeTargetVersion},
	{kv.ErrDowngradeInProcess, rpctypes.ErrGRPCDowngradeInProcess},
	{kv.ErrNoDowngrade, rpctypes.ErrGRPCNoInflightDowngrade},
	// etcd does not notice. The request had no effect; another member may accept it.
	{kv.ErrAway, status.Error(codes.Unavailable,
		"vigil: "+kv.ErrAway.Error()+
			": this member accepts no writes, see its log or vigilctl doctor")},
}

// errFile replaces an error that names a file of the member.
var errFile = status.Error(codes.Unknown,
	"vigil: a file operation failed, see the log of the member")

// Status returns the status for an error of the member; nil for nil. An error that is not in the
// table keeps its text and has the code Unknown.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	if large := (*kv.TooLargeError)(nil); errors.As(err, &large) {
		return status.Errorf(codes.ResourceExhausted,
			"grpc: trying to send message larger than max (%d vs. %d)", large.Size, large.Limit)
	}
	if limit := (*kv.LimitError)(nil); errors.As(err, &limit) {
		return status.Error(codes.InvalidArgument, "etcdserver: "+limit.Error())
	}
	if at := (*kv.TimeError)(nil); errors.As(err, &at) {
		return timeStatus(at)
	}
	for i := range table {
		if errors.Is(err, table[i].from) {
			return table[i].to
		}
	}
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return errFile
	}
	return status.Error(codes.Unknown, err.Error())
}

// timeStatus returns the status for a time that has no revision. If the revision of the time is
// compacted, or the time is in the future, it begins with etcd's text for such a revision.
func timeStatus(e *kv.TimeError) error {
	text := "vigil: "
	switch e.Reason {
	case kv.TimeCompacted:
		text = rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted) + ": "
	case kv.TimeInFuture:
		text = rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev) + ": "
	case kv.NoTimes:
		return status.Error(codes.FailedPrecondition, text+e.Error())
	}
	return status.Error(codes.OutOfRange, text+e.Error())
}

// Text returns the text of an error of the member in the API, for health checks and logs.
func Text(err error) string { return rpctypes.ErrorDesc(Status(err)) }
