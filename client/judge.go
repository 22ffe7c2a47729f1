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
	elsewhere bool // at another member rather
	sick      bool // the member is to be left alone for a while
	renew     bool // with another token
	unknown   bool // a write may have been applied
}

// judge says what follows from an error. sent reports whether the request may have reached the member.
func judge(e *Error, m *method, sent bool) verdict {
	v := judgeCall(e, sent)
	if !m.lasting || v.renew || v.again {
		return v
	}
	// A stream that lasts has no answer that could end it: what ends it is about the member or the connection,
	// unless the server means the request.
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
		// The data of this member are wrong, and it applies nothing; those of the others need not be.
		return verdict{again: true, elsewhere: true, sick: true}
	case ErrInvalidAuthToken, ErrAuthOldRevision, ErrUserEmpty:
		return verdict{renew: true}
	case ErrServerStopped, ErrRequestTimeout, ErrTimeoutLeaderFailed, ErrTimeoutConnectionLost, ErrTimeoutApplying, ErrLeaderChanged:
		return verdict{again: true, elsewhere: true, unknown: true}
	case ErrRequestCanceled:
		// The server saw the call end, by the caller or with the connection.
		return verdict{again: true, elsewhere: true, unknown: true}
	case ErrRequestDeadline:
		return verdict{unknown: true}
	case ErrNoSpace:
		// etcd also says so after it has applied the request that crossed the quota.
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
		// Not by the caller, whose context is named in e.kind if it has ended: the connection was closed, or the
		// server gave up.
		return verdict{again: e.kind == nil, elsewhere: true, unknown: sent}
	case codes.DeadlineExceeded, codes.Unknown, codes.Aborted, codes.DataLoss:
		return verdict{unknown: sent}
	}
	return verdict{}
}

// Temporary reports whether an error of a call is about the member that was asked, the connection or the moment, so
// that the same call may succeed later; other errors are about the call itself.
func Temporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || errors.Is(e, ErrClosed) {
		return false
	}
	v := judge(e, &method{lasting: true}, false)
	return v.again || v.renew
}
