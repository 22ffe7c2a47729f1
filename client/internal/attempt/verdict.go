package attempt

import (
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// Failure is the error of an attempt.
type Failure struct {
	// Code and Text are the member's, or gRPC's.
	Code codes.Code
	Text string
	// API reports that Text is an error of the API, Caused that the error has a known cause, and
	// Malformed that the answer could not be decoded.
	API, Caused, Malformed bool
	// Sent reports that the request may have reached the member, Lasting that the call is a stream
	// that the client ends.
	Sent, Lasting bool
}

// Verdict is what follows from an error.
type Verdict struct {
	Again     bool // another attempt may help
	Elsewhere bool // preferably at another member
	Sick      bool // the member should be avoided for a while
	// another attempt needs another token; with Again, only if the token is older than a change of
	// users
	Renew   bool
	Unknown bool // a write may have been applied
}

// Judge decides what follows from an error.
func Judge(f Failure) Verdict {
	v := judgeCall(&f)
	if !f.Lasting || v.Renew || v.Again {
		return v
	}
	// A lasting stream has no answer that ends it. Its errors are about the member or the
	// connection, unless the server refuses the request.
	switch f.Code {
	case codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted, codes.DeadlineExceeded:
		v.Again, v.Elsewhere = !f.Malformed, true
	}
	return v
}

var (
	leave = Verdict{Again: true, Elsewhere: true, Sick: true}
	renew = Verdict{Renew: true}
	// old: users or roles have changed since the call was identified. The member has done nothing.
	old     = Verdict{Again: true, Renew: true}
	repeat  = Verdict{Again: true, Elsewhere: true, Unknown: true}
	unknown = Verdict{Unknown: true}
)

// byText are the errors of the API from which more follows than that the call has failed.
var byText = map[string]Verdict{
	// The server says so before it proposes a request, and because calls ask for a leader.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader):               leave,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests): {Again: true, Elsewhere: true},
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner): leave,
	// The data of this member are damaged; the data of other members may be intact.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCorrupt): leave,

	rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken): renew,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision):  old,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):        renew,

	rpctypes.ErrorDesc(rpctypes.ErrGRPCStopped):                    repeat,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeout):                    repeat,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutDueToLeaderFail):     repeat,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutDueToConnectionLost): repeat,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeoutWaitAppliedIndex):    repeat,
	rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaderChanged):              repeat,
	// For the server the call ended, by the caller or with the connection.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCCanceled): repeat,

	rpctypes.ErrorDesc(rpctypes.ErrGRPCDeadlineExceeded): unknown,
	// etcd also returns it after it has applied the request that crossed the quota.
	rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace): unknown,
}

func judgeCall(f *Failure) Verdict {
	if f.API {
		return byText[f.Text]
	}
	switch f.Code {
	case codes.Unavailable:
		return Verdict{Again: true, Elsewhere: true, Unknown: f.Sent}
	case codes.Unauthenticated:
		return renew
	case codes.Internal:
		return Verdict{Again: strings.Contains(f.Text, "RST_STREAM"), Elsewhere: true,
			Unknown: f.Sent}
	case codes.ResourceExhausted:
		return Verdict{Unknown: f.Sent &&
			!strings.Contains(f.Text, "trying to send message larger than max")}
	case codes.Canceled:
		// Not by the caller: then the cause is the error of its context. The connection was closed,
		// or the server canceled.
		return Verdict{Again: !f.Caused, Elsewhere: true, Unknown: f.Sent}
	case codes.DeadlineExceeded, codes.Unknown, codes.Aborted, codes.DataLoss:
		return Verdict{Unknown: f.Sent}
	}
	return Verdict{}
}
