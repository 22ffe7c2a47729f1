package attempt

import (
	"context"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrLeft ends a stream whose member turned sick, is no longer among the endpoints, or is not
	// preferred.
	ErrLeft = status.Error(codes.Unavailable, "the client left the member")
	// errEnded means that the member ended the stream without a reason.
	errEnded = status.Error(codes.Unavailable, "the member ended the stream")
)

// StreamError returns why a lasting stream has ended, if gRPC does not. The cause of its context is
// ErrLeft if the client left the member.
func StreamError(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) == ErrLeft:
		return ErrLeft
	case err == io.EOF:
		return errEnded
	}
	return err
}
