package client

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"

	"vigil/client/internal/wire"
)

// verdict is what follows from an error.
type verdict struct {
	again     bool // another attempt may help
	elsewhere bool // preferably at another member
	sick      bool // the member should be avoided for a while
	renew     bool // another attempt needs another token
	unknown   bool // a write may have been applied
}

// judge decides what follows from an error. sent says that the request may have reached the member.
func judge(e *Error, m *method, sent bool) verdict {
	v := judgeCall(e, sent)
	if !m.lasting || v.renew || v.again {
		return v
	}
	// A lasting stream has no answer that ends it. Its errors are about the member or the connection, unless the server
	// refuses the request.
	switch e.Code {
	case codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted, codes.DeadlineExceeded:
		v.again, v.elsewhere = e.kind != wire.ErrMalformed, true
	}
	return v
}

func judgeCall(e *Error, sent bool) verdict {
	switch kind := kinds[e.Text]; kind {
	case nil:
	case ErrNoLeader:
		// The server says so before it proposes a request, and because calls ask for a leader.
		return verdict{again: true, elsewhere: true, sick: true}
	case ErrTooManyRequests:
		return verdict{again: true, elsewhere: true}
	case ErrLearnerUnsupported:
		return verdict{again: true, elsewhere: true, sick: true}
	case ErrCorrupt:
		// The data of this member are damaged; those of other members need not be.
		return verdict{again: true, elsewhere: true, sick: true}
	case ErrInvalidAuthToken, ErrAuthOldRevision, ErrUserEmpty:
		return verdict{renew: true}
	case ErrServerStopped, ErrRequestTimeout, ErrTimeoutLeaderFailed, ErrTimeoutConnectionLost, ErrTimeoutApplying, ErrLeaderChanged:
		return verdict{again: true, elsewhere: true, unknown: true}
	case ErrRequestCanceled:
		// For the server the call ended, by the caller or with the connection.
		return verdict{again: true, elsewhere: true, unknown: true}
	case ErrRequestDeadline:
		return verdict{unknown: true}
	case ErrNoSpace:
		// etcd also returns it after it has applied the request that crossed the quota.
		return verdict{unknown: true}
	default:
		return verdict{}
	}
	switch e.Code {
	case codes.Unavailable:
		return verdict{again: true, elsewhere: true, unknown: sent}
	case codes.Unauthenticated:
		return verdict{renew: true}
	case codes.Internal:
		return verdict{again: strings.Contains(e.Text, "RST_STREAM"), elsewhere: true, unknown: sent}
	case codes.ResourceExhausted:
		return verdict{unknown: sent && !strings.Contains(e.Text, "trying to send message larger than max")}
	case codes.Canceled:
		// Not by the caller: then e.kind is the error of its context. The connection was closed, or the server canceled.
		return verdict{again: e.kind == nil, elsewhere: true, unknown: sent}
	case codes.DeadlineExceeded, codes.Unknown, codes.Aborted, codes.DataLoss:
		return verdict{unknown: sent}
	}
	return verdict{}
}

// Temporary reports whether an error of a call is about the member, the connection or the moment, so that the same call
// may succeed later. Other errors are about the call itself.
func Temporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || errors.Is(e, ErrClosed) {
		return false
	}
	v := judge(e, &method{lasting: true}, false)
	return v.again || v.renew
}
