package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"vigil/internal/vfs"
)

// The errors of a bucket. An error of a Bucket wraps one of these, or comes from the network, the
// disk or the context.
var (
	// ErrExists: there is an object with the key.
	ErrExists = errors.New("the object exists")
	// ErrNotFound: there is no object with the key, or no such bucket.
	ErrNotFound = errors.New("there is no such object")
	// ErrDenied: the caller lacks permission.
	ErrDenied = errors.New("permission denied")
	// ErrLocked: the object must not be deleted yet.
	ErrLocked = errors.New("the object is locked")
	// ErrSize: the object is larger than the caller allows.
	ErrSize = errors.New("the object is too large")
	// ErrKey: the key is not one that ValidKey accepts.
	ErrKey = errors.New("invalid key")
	// ErrUnavailable: the program vigil-bucket cannot be started, has ended or does not answer.
	ErrUnavailable = errors.New("the bucket is unavailable")
)

// MaxObject is the maximum size of an object in bytes.
const MaxObject = 1 << 30

// ListLimit is the largest limit of List.
const ListLimit = 10_000

// Object describes an object in a list.
type Object struct {
	Key  string
	Size int64
	// Modified is the time of the write by the bucket's clock.
	Modified time.Time
}

// Bucket is a set of objects. It may be used from any goroutine.
type Bucket interface {
	// Put writes an object. Errors: ErrExists if there is one with this key.
	Put(ctx context.Context, key string, data []byte) error
	// Get returns the bytes of an object from an offset on; at or beyond its end it has none.
	// Errors: ErrNotFound.
	Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error)
	// List returns the first objects whose keys begin with prefix and are above after, in the order
	// of their keys: limit of them, and fewer only if there are no more. A limit above ListLimit
	// counts as ListLimit.
	List(ctx context.Context, prefix, after string, limit int) ([]Object, error)
	// Delete removes an object. Errors: ErrNotFound, which not every bucket returns; ErrLocked.
	Delete(ctx context.Context, key string) error
	// Close ends the use of the bucket. Calls in progress fail.
	Close() error
}

// Options configure the use of a bucket. The zero value is the default.
type Options struct {
	// FS is the file system of a directory; default vfs.OS.
	FS vfs.FS
	// Create makes the directory of a URL with the scheme file if it does not exist. Otherwise its
	// absence is ErrNotFound.
	Create bool
	// Program is the path of the program vigil-bucket; default the file of this name next to this
	// executable, then in PATH.
	Program string
	// Logger receives lines about the program; default none.
	Logger *slog.Logger
}

// Open opens the bucket of a URL: file:///DIRECTORY, or what the program vigil-bucket accepts, for
// instance s3://BUCKET?region=REGION&prefix=NAME/. It reads and writes nothing: an unreachable
// bucket is an error of the later calls.
func Open(ctx context.Context, address string, o Options) (Bucket, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		// The error of url.Parse holds the whole text.
		return nil, errors.New("the address of a bucket is not a URL")
	case u.Scheme == "":
		return nil, fmt.Errorf("the address of a bucket is a URL, for instance "+
			"file:///srv/archive, and %q has no scheme", address)
	case u.Scheme == "file":
		return openDirectory(u, &o)
	}
	return openProgram(ctx, u, &o)
}

func openDirectory(u *url.URL, o *Options) (Bucket, error) {
	switch {
	case u.Host != "" && u.Host != "localhost":
		return nil, fmt.Errorf("%s: a directory is file:///DIRECTORY with three slashes",
			Show(u.String()))
	case u.Path == "" || u.Path == "/":
		return nil, fmt.Errorf("%s: the directory is missing", Show(u.String()))
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%s: a directory has no parameters", Show(u.String()))
	}
	return NewDirectory(o.FS, u.Path, o.Create)
}

// Show returns the URL of a bucket without parts that may be secret: the user, and all parameters
// except the ones that name a place.
func Show(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(not a URL)"
	}
	out := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	q := url.Values{}
	for _, name := range []string{"prefix", "region", "endpoint"} {
		if v := u.Query().Get(name); v != "" && !strings.Contains(v, "@") {
			q.Set(name, v)
		}
	}
	out.RawQuery = q.Encode()
	return out.String()
}

// ValidKey reports whether a key is valid: parts of letters, digits, ".", "-" and "_", separated by
// slashes, up to 512 bytes in all. No part begins with ".".
func ValidKey(key string) bool {
	if key == "" || len(key) > 512 {
		return false
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part[0] == '.' {
			return false
		}
		for i := range len(part) {
			c := part[i]
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' ||
				c == '-' || c == '_') {
				return false
			}
		}
	}
	return true
}

// All returns all objects whose keys begin with prefix and are above after, in the order of their
// keys. An error ends it.
func All(ctx context.Context, b Bucket, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for {
			list, err := b.List(ctx, prefix, after, ListLimit)
			if err != nil {
				yield(Object{}, err)
				return
			}
			for _, o := range list {
				if o.Key <= after {
					yield(Object{}, fmt.Errorf("the list of the bucket has %q after %q", o.Key,
						after))
					return
				}
				after = o.Key
				if !yield(o, nil) {
					return
				}
			}
			if len(list) < ListLimit {
				return
			}
		}
	}
}

// ReadAll returns the bytes of an object. Errors: ErrSize if there are more than limit; the errors
// of Get.
func ReadAll(ctx context.Context, b Bucket, key string, limit int64) ([]byte, error) {
	r, err := b.Get(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrSize, key, limit)
	}
	return data, err
}
