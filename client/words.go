package client

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// What a server can say, for errors.Is. Their texts are those of the API.
var (
	ErrEmptyKey                      = said(rpctypes.ErrGRPCEmptyKey)
	ErrKeyNotFound                   = said(rpctypes.ErrGRPCKeyNotFound)
	ErrValueProvided                 = said(rpctypes.ErrGRPCValueProvided)
	ErrLeaseProvided                 = said(rpctypes.ErrGRPCLeaseProvided)
	ErrTooManyOps                    = said(rpctypes.ErrGRPCTooManyOps)
	ErrDuplicateKey                  = said(rpctypes.ErrGRPCDuplicateKey)
	ErrInvalidClientAPIVersion       = said(rpctypes.ErrGRPCInvalidClientAPIVersion)
	ErrInvalidSortOption             = said(rpctypes.ErrGRPCInvalidSortOption)
	ErrCompacted                     = said(rpctypes.ErrGRPCCompacted)
	ErrFutureRevision                = said(rpctypes.ErrGRPCFutureRev)
	ErrNoSpace                       = said(rpctypes.ErrGRPCNoSpace)
	ErrLeaseNotFound                 = said(rpctypes.ErrGRPCLeaseNotFound)
	ErrLeaseExists                   = said(rpctypes.ErrGRPCLeaseExist)
	ErrLeaseTTLTooLarge              = said(rpctypes.ErrGRPCLeaseTTLTooLarge)
	ErrWatchCanceled                 = said(rpctypes.ErrGRPCWatchCanceled)
	ErrMemberExists                  = said(rpctypes.ErrGRPCMemberExist)
	ErrPeerURLExists                 = said(rpctypes.ErrGRPCPeerURLExist)
	ErrMemberNotEnoughStarted        = said(rpctypes.ErrGRPCMemberNotEnoughStarted)
	ErrMemberBadURLs                 = said(rpctypes.ErrGRPCMemberBadURLs)
	ErrMemberNotFound                = said(rpctypes.ErrGRPCMemberNotFound)
	ErrMemberNotLearner              = said(rpctypes.ErrGRPCMemberNotLearner)
	ErrLearnerNotReady               = said(rpctypes.ErrGRPCLearnerNotReady)
	ErrTooManyLearners               = said(rpctypes.ErrGRPCTooManyLearners)
	ErrClusterIDMismatch             = said(rpctypes.ErrGRPCClusterIDMismatch)
	ErrRequestTooLarge               = said(rpctypes.ErrGRPCRequestTooLarge)
	ErrTooManyRequests               = said(rpctypes.ErrGRPCRequestTooManyRequests)
	ErrNoRootUser                    = said(rpctypes.ErrGRPCRootUserNotExist)
	ErrNoRootRole                    = said(rpctypes.ErrGRPCRootRoleNotExist)
	ErrUserExists                    = said(rpctypes.ErrGRPCUserAlreadyExist)
	ErrUserEmpty                     = said(rpctypes.ErrGRPCUserEmpty)
	ErrUserNotFound                  = said(rpctypes.ErrGRPCUserNotFound)
	ErrRoleExists                    = said(rpctypes.ErrGRPCRoleAlreadyExist)
	ErrRoleNotFound                  = said(rpctypes.ErrGRPCRoleNotFound)
	ErrRoleEmpty                     = said(rpctypes.ErrGRPCRoleEmpty)
	ErrAuthFailed                    = said(rpctypes.ErrGRPCAuthFailed)
	ErrPermissionNotGiven            = said(rpctypes.ErrGRPCPermissionNotGiven)
	ErrPermissionDenied              = said(rpctypes.ErrGRPCPermissionDenied)
	ErrRoleNotGranted                = said(rpctypes.ErrGRPCRoleNotGranted)
	ErrPermissionNotGranted          = said(rpctypes.ErrGRPCPermissionNotGranted)
	ErrAuthNotEnabled                = said(rpctypes.ErrGRPCAuthNotEnabled)
	ErrInvalidAuthToken              = said(rpctypes.ErrGRPCInvalidAuthToken)
	ErrInvalidAuthManagement         = said(rpctypes.ErrGRPCInvalidAuthMgmt)
	ErrAuthOldRevision               = said(rpctypes.ErrGRPCAuthOldRevision)
	ErrNoLeader                      = said(rpctypes.ErrGRPCNoLeader)
	ErrNotLeader                     = said(rpctypes.ErrGRPCNotLeader)
	ErrLeaderChanged                 = said(rpctypes.ErrGRPCLeaderChanged)
	ErrNotCapable                    = said(rpctypes.ErrGRPCNotCapable)
	ErrServerStopped                 = said(rpctypes.ErrGRPCStopped)
	ErrRequestTimeout                = said(rpctypes.ErrGRPCTimeout)
	ErrTimeoutLeaderFailed           = said(rpctypes.ErrGRPCTimeoutDueToLeaderFail)
	ErrTimeoutConnectionLost         = said(rpctypes.ErrGRPCTimeoutDueToConnectionLost)
	ErrTimeoutApplying               = said(rpctypes.ErrGRPCTimeoutWaitAppliedIndex)
	ErrUnhealthyCluster              = said(rpctypes.ErrGRPCUnhealthy)
	ErrCorrupt                       = said(rpctypes.ErrGRPCCorrupt)
	ErrLearnerUnsupported            = said(rpctypes.ErrGRPCNotSupportedForLearner)
	ErrBadLeaderTransferee           = said(rpctypes.ErrGRPCBadLeaderTransferee)
	ErrWrongDowngradeVersionFormat   = said(rpctypes.ErrGRPCWrongDowngradeVersionFormat)
	ErrInvalidDowngradeTargetVersion = said(rpctypes.ErrGRPCInvalidDowngradeTargetVersion)
	ErrClusterVersionUnavailable     = said(rpctypes.ErrGRPCClusterVersionUnavailable)
	ErrDowngradeInProgress           = said(rpctypes.ErrGRPCDowngradeInProcess)
	ErrNoDowngrade                   = said(rpctypes.ErrGRPCNoInflightDowngrade)
	ErrRequestCanceled               = said(rpctypes.ErrGRPCCanceled)
	ErrRequestDeadline               = said(rpctypes.ErrGRPCDeadlineExceeded)
)

// kinds finds them by their text, which is how the API tells them apart.
var kinds map[string]error

func said(err error) error {
	if kinds == nil {
		kinds = map[string]error{}
	}
	text := rpctypes.ErrorDesc(err)
	k := errors.New(text)
	kinds[text] = k
	return k
}
