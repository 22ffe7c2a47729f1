// Package cloud is a bucket in object storage, by gocloud.dev/blob.
package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	gcs "cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/gcsblob"   // gs://
	_ "gocloud.dev/blob/s3blob"    // s3://

	"vigil/internal/bucket"
)

// page is how many objects are listed at a time: what all services accept.
const page = 1000

// attempts is how often Google's library makes a request that fails. The libraries of the others
// have such limits of their own.
const attempts = 3

// cloudBucket is a bucket.Bucket.
type cloudBucket struct{ b *blob.Bucket }

// Open opens a bucket: s3://NAME?region=REGION, gs://NAME, azblob://CONTAINER, with prefix=FOLDER/
// among the parameters for a part of it. gocloud.dev describes the other parameters.
func Open(ctx context.Context, address string) (bucket.Bucket, error) {
	address, err := received(address)
	if err != nil {
		return nil, err
	}
	b, err := blob.OpenBucket(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", bucket.Show(address), err)
	}
	// Google's library repeats a request as long as its context allows, so that its caller does not
	// see why it fails.
	var google *gcs.Client
	if b.As(&google) {
		google.SetRetry(gcs.WithMaxAttempts(attempts))
	}
	return New(b), nil
}

// received returns the URL with which the bytes of a damaged object are received: the reader of an
// archive compares checksums of its own and names the object, while an error of the library would
// look like a storage that is away.
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

// Put implements bucket.Bucket. Nothing counts as stored but what the storage has confirmed: the
// answer that an object exists, or one that may mean so, is looked up, and it is no answer if
// nothing is found.
func (c *cloudBucket) Put(ctx context.Context, key string, data []byte) error {
	// The object is one request, which has the condition. S3 receives one of 16 MiB or more as an
	// upload of one part, whose end has it.
	err := c.b.Upload(ctx, key, bytes.NewReader(data),
		&blob.WriterOptions{IfNotExist: true, BufferSize: len(data) + 1,
			ContentType: "application/octet-stream",
			BeforeWrite: func(as func(any) bool) error {
				// Its uploads know no number of attempts. The caller repeats them.
				var google **gcs.ObjectHandle
				if as(&google) {
					*google = (*google).Retryer(gcs.WithPolicy(gcs.RetryNever))
				}
				return nil
			}})
	if err == nil {
		return nil
	}
	wrapped, r := wrap(err), read(err)
	if errors.Is(wrapped, bucket.ErrLocked) {
		wrapped = hide(err) // what is not there cannot be locked
	}
	if !r.refusesWrite() {
		return wrapped
	}
	if _, lookErr := c.b.Attributes(ctx, key); lookErr != nil {
		if errors.Is(wrap(lookErr), bucket.ErrNotFound) {
			return wrapped
		}
		return fmt.Errorf("%w; and it is not known whether the object exists: %w",
			wrapped, hide(lookErr))
	}
	return fmt.Errorf("%w: %w", bucket.ErrExists, hide(err))
}

// hide returns an error with the text of another one and without its kind.
func hide(err error) error { return errors.New(err.Error()) }

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
func (c *cloudBucket) List(ctx context.Context, prefix, after string,
	limit int) ([]bucket.Object, error) {
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

// startAfter lets a service begin the list of a prefix after a key, if it can. It may begin
// earlier. The service's prefix has that of the URL before the prefix of the call.
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
	err := c.b.Delete(ctx, key)
	if err == nil {
		return nil
	}
	// S3 has no code for a lock.
	if r := read(err); r.service == amazon && r.refusesWrite() && c.locked(ctx, key) {
		return fmt.Errorf("%w: %w", bucket.ErrLocked, hide(err))
	}
	return wrap(err)
}

// locked reports whether an object in S3 is locked, as far as the caller may know that: the answer
// to a deletion has the same code as that of a missing right.
func (c *cloudBucket) locked(ctx context.Context, key string) bool {
	var client *s3.Client
	if !c.b.As(&client) {
		return false
	}
	// The library knows the names of the bucket and of the object.
	var object s3.GetObjectInput
	r, err := c.b.NewRangeReader(ctx, key, 0, 1,
		&blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
			var p *s3.GetObjectInput
			if as(&p) {
				object = *p
			}
			return nil
		}})
	if err != nil {
		return false
	}
	written := r.ModTime()
	_ = r.Close()
	hold, err := client.GetObjectLegalHold(ctx,
		&s3.GetObjectLegalHoldInput{Bucket: object.Bucket, Key: object.Key})
	if err == nil && hold.LegalHold != nil &&
		hold.LegalHold.Status == types.ObjectLockLegalHoldStatusOn {
		return true
	}
	kept, err := client.GetObjectRetention(ctx,
		&s3.GetObjectRetentionInput{Bucket: object.Bucket, Key: object.Key})
	if err == nil && kept.Retention != nil && kept.Retention.RetainUntilDate != nil &&
		kept.Retention.RetainUntilDate.After(time.Now()) {
		return true
	}
	// S3 writes the default of the bucket to each object; others look at it when an object is
	// deleted.
	rules, err := client.GetObjectLockConfiguration(ctx,
		&s3.GetObjectLockConfigurationInput{Bucket: object.Bucket})
	if err != nil || rules.ObjectLockConfiguration == nil ||
		rules.ObjectLockConfiguration.Rule == nil ||
		rules.ObjectLockConfiguration.Rule.DefaultRetention == nil {
		return false
	}
	days, years := rules.ObjectLockConfiguration.Rule.DefaultRetention.Days,
		rules.ObjectLockConfiguration.Rule.DefaultRetention.Years
	until := written
	if days != nil {
		until = until.AddDate(0, 0, int(*days))
	}
	if years != nil {
		until = until.AddDate(int(*years), 0, 0)
	}
	return until.After(time.Now())
}

// Close implements bucket.Bucket.
func (c *cloudBucket) Close() error { return c.b.Close() }
