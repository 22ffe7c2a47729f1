package client

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Errors of servers, for errors.Is. Their texts are the API's.
var (
	ErrEmptyKey                      = newKind(rpctypes.ErrGRPCEmptyKey)
	ErrKeyNotFound                   = newKind(rpctypes.ErrGRPCKeyNotFound)
	ErrValueProvided                 = newKind(rpctypes.ErrGRPCValueProvided)
	ErrLeaseProvided                 = newKind(rpctypes.ErrGRPCLeaseProvided)
	ErrTooManyOps                    = newKind(rpctypes.ErrGRPCTooManyOps)
	ErrDuplicateKey                  = newKind(rpctypes.ErrGRPCDuplicateKey)
	ErrInvalidClientAPIVersion       = newKind(rpctypes.ErrGRPCInvalidClientAPIVersion)
	ErrInvalidSortOption             = newKind(rpctypes.ErrGRPCInvalidSortOption)
	ErrCompacted                     = newKind(rpctypes.ErrGRPCCompacted)
	ErrFutureRevision                = newKind(rpctypes.ErrGRPCFutureRev)
	ErrNoSpace                       = newKind(rpctypes.ErrGRPCNoSpace)
	ErrLeaseNotFound                 = newKind(rpctypes.ErrGRPCLeaseNotFound)
	ErrLeaseExists                   = newKind(rpctypes.ErrGRPCLeaseExist)
	ErrLeaseTTLTooLarge              = newKind(rpctypes.ErrGRPCLeaseTTLTooLarge)
	ErrWatchCanceled                 = newKind(rpctypes.ErrGRPCWatchCanceled)
	ErrMemberExists                  = newKind(rpctypes.ErrGRPCMemberExist)
	ErrPeerURLExists                 = newKind(rpctypes.ErrGRPCPeerURLExist)
	ErrMemberNotEnoughStarted        = newKind(rpctypes.ErrGRPCMemberNotEnoughStarted)
	ErrMemberBadURLs                 = newKind(rpctypes.ErrGRPCMemberBadURLs)
	ErrMemberNotFound                = newKind(rpctypes.ErrGRPCMemberNotFound)
	ErrMemberNotLearner              = newKind(rpctypes.ErrGRPCMemberNotLearner)
	ErrLearnerNotReady               = newKind(rpctypes.ErrGRPCLearnerNotReady)
	ErrTooManyLearners               = newKind(rpctypes.ErrGRPCTooManyLearners)
	ErrClusterIDMismatch             = newKind(rpctypes.ErrGRPCClusterIDMismatch)
	ErrRequestTooLarge               = newKind(rpctypes.ErrGRPCRequestTooLarge)
	ErrTooManyRequests               = newKind(rpctypes.ErrGRPCRequestTooManyRequests)
	ErrNoRootUser                    = newKind(rpctypes.ErrGRPCRootUserNotExist)
	ErrNoRootRole                    = newKind(rpctypes.ErrGRPCRootRoleNotExist)
	ErrUserExists                    = newKind(rpctypes.ErrGRPCUserAlreadyExist)
	ErrUserEmpty                     = newKind(rpctypes.ErrGRPCUserEmpty)
	ErrUserNotFound                  = newKind(rpctypes.ErrGRPCUserNotFound)
	ErrRoleExists                    = newKind(rpctypes.ErrGRPCRoleAlreadyExist)
	ErrRoleNotFound                  = newKind(rpctypes.ErrGRPCRoleNotFound)
	ErrRoleEmpty                     = newKind(rpctypes.ErrGRPCRoleEmpty)
	ErrAuthFailed                    = newKind(rpctypes.ErrGRPCAuthFailed)
	ErrPermissionNotGiven            = newKind(rpctypes.ErrGRPCPermissionNotGiven)
	ErrPermissionDenied              = newKind(rpctypes.ErrGRPCPermissionDenied)
	ErrRoleNotGranted                = newKind(rpctypes.ErrGRPCRoleNotGranted)
	ErrPermissionNotGranted          = newKind(rpctypes.ErrGRPCPermissionNotGranted)
	ErrAuthNotEnabled                = newKind(rpctypes.ErrGRPCAuthNotEnabled)
	ErrInvalidAuthToken              = newKind(rpctypes.ErrGRPCInvalidAuthToken)
	ErrInvalidAuthManagement         = newKind(rpctypes.ErrGRPCInvalidAuthMgmt)
	ErrAuthOldRevision               = newKind(rpctypes.ErrGRPCAuthOldRevision)
	ErrNoLeader                      = newKind(rpctypes.ErrGRPCNoLeader)
	ErrNotLeader                     = newKind(rpctypes.ErrGRPCNotLeader)
	ErrLeaderChanged                 = newKind(rpctypes.ErrGRPCLeaderChanged)
	ErrNotCapable                    = newKind(rpctypes.ErrGRPCNotCapable)
	ErrServerStopped                 = newKind(rpctypes.ErrGRPCStopped)
	ErrRequestTimeout                = newKind(rpctypes.ErrGRPCTimeout)
	ErrTimeoutLeaderFailed           = newKind(rpctypes.ErrGRPCTimeoutDueToLeaderFail)
	ErrTimeoutConnectionLost         = newKind(rpctypes.ErrGRPCTimeoutDueToConnectionLost)
	ErrTimeoutApplying               = newKind(rpctypes.ErrGRPCTimeoutWaitAppliedIndex)
	ErrUnhealthyCluster              = newKind(rpctypes.ErrGRPCUnhealthy)
	ErrCorrupt                       = newKind(rpctypes.ErrGRPCCorrupt)
	ErrLearnerUnsupported            = newKind(rpctypes.ErrGRPCNotSupportedForLearner)
	ErrBadLeaderTransferee           = newKind(rpctypes.ErrGRPCBadLeaderTransferee)
	ErrWrongDowngradeVersionFormat   = newKind(rpctypes.ErrGRPCWrongDowngradeVersionFormat)
	ErrInvalidDowngradeTargetVersion = newKind(rpctypes.ErrGRPCInvalidDowngradeTargetVersion)
	ErrClusterVersionUnavailable     = newKind(rpctypes.ErrGRPCClusterVersionUnavailable)
	ErrDowngradeInProgress           = newKind(rpctypes.ErrGRPCDowngradeInProcess)
	ErrNoDowngrade                   = newKind(rpctypes.ErrGRPCNoInflightDowngrade)
	ErrRequestCanceled               = newKind(rpctypes.ErrGRPCCanceled)
	ErrRequestDeadline               = newKind(rpctypes.ErrGRPCDeadlineExceeded)
)

// kinds finds the errors of servers by their text: the API distinguishes them by it.
var kinds map[string]error

func newKind(err error) error {
	if kinds == nil {
		kinds = map[string]error{}
	}
	text := rpctypes.ErrorDesc(err)
	k := errors.New(text)
	kinds[text] = k
	return k
}
