package bucket

import (
	"context"
	"fmt"
	"net/url"
)

// openProgram opens a bucket through the program vigil-bucket.
func openProgram(_ context.Context, u *url.URL, _ *Options) (Bucket, error) {
	return nil, fmt.Errorf("%s: %w: the scheme is not supported", Show(u.String()), ErrUnavailable)
}
