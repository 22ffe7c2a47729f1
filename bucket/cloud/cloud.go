// Package cloud is a bucket in object storage, by gocloud.dev/blob.
package cloud

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	gcs "cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/gcsblob"   // gs://
	_ "gocloud.dev/blob/s3blob"    // s3://
	"gocloud.dev/gcerrors"
	"google.golang.org/api/googleapi"

	"vigil/internal/bucket"
)

// page is how many objects are listed at a time: what all services accept.
const page = 1000

// attempts is how often Google's library makes a request that fails. The libraries of the others have such limits of their own.
const attempts = 3

// cloudBucket is a bucket.Bucket.
type cloudBucket struct{ b *blob.Bucket }

// Open opens a bucket: s3://NAME?region=REGION, gs://NAME, azblob://CONTAINER, with prefix=FOLDER/ among the parameters for a part
// of it. gocloud.dev describes the other parameters.
func Open(ctx context.Context, address string) (bucket.Bucket, error) {
	address, err := received(address)
	if err != nil {
		return nil, err
	}
	b, err := blob.OpenBucket(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", bucket.Show(address), err)
	}
	// Google's library repeats a request as long as its context allows, so that its caller does not see why it fails.
	var google *gcs.Client
	if b.As(&google) {
		google.SetRetry(gcs.WithMaxAttempts(attempts))
	}
	return New(b), nil
}

// received returns the URL with which the bytes of a damaged object are received: the reader of an archive compares checksums of its
// own and names the object, while an error of the library would look like a storage that is away.
func received(address string) (string, error) {
	const parameter = "response_checksum_validation"
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the address of the bucket is not a URL")
	}
	if q := u.Query(); u.Scheme == "s3" && !q.Has(parameter) {
		q.Set(parameter, "when_required")
		u.RawQuery = q.Encode()
	}
	return u.String(), nil
}

// New returns the bucket of a blob.Bucket, which it closes.
func New(b *blob.Bucket) bucket.Bucket { return &cloudBucket{b} }

// locks are in the texts of errors about objects that must not be deleted.
var locks = []string{"ObjectLocked", "WORM", "retentionPolicyNotMet", "retention policy", "BlobImmutableDueToPolicy", "object lock", "under active Event-Based hold"}

// wrap returns an error of the library as one of package bucket.
func wrap(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	kind := error(nil)
	if code := status(err); code == http.StatusUnauthorized || code == http.StatusForbidden {
		// gocloud.dev takes what Google forbids for an object that does not exist.
		kind = bucket.ErrDenied
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		kind = cmp.Or(kind, bucket.ErrNotFound)
	case gcerrors.AlreadyExists, gcerrors.FailedPrecondition:
		kind = bucket.ErrExists
	case gcerrors.PermissionDenied:
		kind = bucket.ErrDenied
	}
	text := err.Error()
	for _, l := range locks {
		if strings.Contains(text, l) {
			kind = bucket.ErrLocked
		}
	}
	for code, k := range map[string]error{"AccessDenied": bucket.ErrDenied, "PreconditionFailed": bucket.ErrExists, "ConditionalRequestConflict": bucket.ErrExists,
		"NoSuchBucket": bucket.ErrNotFound, "InvalidAccessKeyId": bucket.ErrDenied, "SignatureDoesNotMatch": bucket.ErrDenied,
		"XAdminUserNotFound": bucket.ErrDenied} {
		if kind == nil && strings.Contains(text, code) {
			kind = k
		}
	}
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// status returns the HTTP status of the answer that an error describes, 0 if there was none.
func status(err error) int {
	var google *googleapi.Error
	var azure *azcore.ResponseError
	var amazon interface{ HTTPStatusCode() int }
	switch {
	case errors.As(err, &google):
		return google.Code
	case errors.As(err, &azure):
		return azure.StatusCode
	case errors.As(err, &amazon):
		return amazon.HTTPStatusCode()
	}
	return 0
}

// Put implements bucket.Bucket.
func (c *cloudBucket) Put(ctx context.Context, key string, data []byte) error {
	// The object is one request, which has the condition. S3 receives one of 16 MiB or more as an upload of one part, whose end has it.
	err := c.b.Upload(ctx, key, bytes.NewReader(data), &blob.WriterOptions{IfNotExist: true, BufferSize: len(data) + 1, ContentType: "application/octet-stream",
		BeforeWrite: func(as func(any) bool) error {
			// Its uploads know no number of attempts. The caller repeats them.
			var google **gcs.ObjectHandle
			if as(&google) {
				*google = (*google).Retryer(gcs.WithPolicy(gcs.RetryNever))
			}
			return nil
		}})
	if err = wrap(err); errors.Is(err, bucket.ErrLocked) {
		// The storage looks at the lock before the condition: there is an object.
		return fmt.Errorf("%w: %v", bucket.ErrExists, err)
	}
	return err
}

// Get implements bucket.Bucket.
func (c *cloudBucket) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if offset > 0 {
		a, err := c.b.Attributes(ctx, key)
		if err != nil {
			return nil, wrap(err)
		}
		if offset >= a.Size {
			return io.NopCloser(strings.NewReader("")), nil
		}
	}
	r, err := c.b.NewRangeReader(ctx, key, offset, -1, nil)
	if err != nil {
		return nil, wrap(err)
	}
	return r, nil
}

// List implements bucket.Bucket.
func (c *cloudBucket) List(ctx context.Context, prefix, after string, limit int) ([]bucket.Object, error) {
	options := &blob.ListOptions{Prefix: prefix, BeforeList: func(as func(any) bool) error {
		startAfter(as, prefix, after)
		return nil
	}}
	var out []bucket.Object
	token := blob.FirstPageToken
	for len(token) > 0 && len(out) < limit {
		list, next, err := c.b.ListPage(ctx, token, page, options)
		if err != nil {
			return nil, wrap(err)
		}
		for _, o := range list {
			if o.Key > after && !o.IsDir && len(out) < limit {
				out = append(out, bucket.Object{Key: o.Key, Size: o.Size, Modified: o.ModTime})
			}
		}
		token = next
	}
	return out, nil
}

// startAfter lets a service begin the list of a prefix after a key, if it can. It may begin earlier. The service's prefix has that of
// the URL before the prefix of the call.
func startAfter(as func(any) bool, prefix, after string) {
	if after == "" {
		return
	}
	var list *s3.ListObjectsV2Input
	var query *gcs.Query
	switch {
	case as(&list):
		if list.ContinuationToken == nil && list.Prefix != nil {
			list.StartAfter = new(strings.TrimSuffix(*list.Prefix, prefix) + after)
		}
	case as(&query):
		query.StartOffset = strings.TrimSuffix(query.Prefix, prefix) + after
	}
}

// Delete implements bucket.Bucket.
func (c *cloudBucket) Delete(ctx context.Context, key string) error {
	return wrap(c.b.Delete(ctx, key))
}

// Close implements bucket.Bucket.
func (c *cloudBucket) Close() error { return c.b.Close() }
