package cloud

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	gcs "cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"google.golang.org/api/googleapi"

	"vigil/internal/bucket"
)

// service is a cloud whose library has returned an error.
type service int

const (
	none service = iota // there was no answer of a service
	amazon
	google
	azure
)

// refusal is the answer of a service that an error describes. Its text is not used: it has names
// that users have chosen, and words of any language.
type refusal struct {
	service service
	status  int
	// codes say what the answer means: that of S3 or Azure, or the reasons of Google. There may be
	// none, as in answers without a body.
	codes []string
}

// read returns the answer that an error describes.
func read(err error) refusal {
	var fromGoogle *googleapi.Error
	var fromAzure *azcore.ResponseError
	var fromAmazon interface{ HTTPStatusCode() int }
	var coded interface{ ErrorCode() string }
	switch {
	case errors.Is(err, gcs.ErrObjectNotExist), errors.Is(err, gcs.ErrBucketNotExist):
		// The library says so for the status 404, whose reason is not always read.
		return refusal{service: google, status: http.StatusNotFound, codes: []string{"notFound"}}
	case errors.As(err, &fromGoogle):
		r := refusal{service: google, status: fromGoogle.Code}
		for _, e := range fromGoogle.Errors {
			r.codes = append(r.codes, e.Reason)
		}
		return r
	case errors.As(err, &fromAzure):
		return refusal{azure, fromAzure.StatusCode, []string{fromAzure.ErrorCode}}
	case errors.As(err, &fromAmazon):
		r := refusal{service: amazon, status: fromAmazon.HTTPStatusCode()}
		if errors.As(err, &coded) {
			r.codes = append(r.codes, coded.ErrorCode())
		}
		return r
	}
	return refusal{}
}

func (r *refusal) has(codes ...string) bool {
	return slices.ContainsFunc(r.codes, func(c string) bool { return slices.Contains(codes, c) })
}

// kind returns the error of package bucket that an answer to any operation is, nil for none: then
// it is not known what it means, or it is temporary, and the caller tries again. ErrExists is not
// among them: Put looks.
func (r *refusal) kind() error {
	switch r.service {
	case amazon:
		switch {
		case r.status == http.StatusNotFound && r.has("NoSuchKey", "NoSuchBucket", "NotFound"):
			return bucket.ErrNotFound
		case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden,
			// Temporary credentials that have ended have another status, and so has an unknown user
			// of versitygw.
			r.has("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "XAdminUserNotFound"):
			return bucket.ErrDenied
		}
	case google:
		switch {
		case r.status == http.StatusNotFound && r.has("notFound"):
			return bucket.ErrNotFound
		case r.has("retentionPolicyNotMet", "objectUnderActiveHold", "objectRetentionPolicyNotMet"):
			return bucket.ErrLocked
		case r.has("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"):
			return nil
		case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden:
			return bucket.ErrDenied
		}
	case azure:
		switch {
		case r.status == http.StatusNotFound &&
			r.has("BlobNotFound", "ContainerNotFound", "ResourceNotFound"):
			return bucket.ErrNotFound
		case r.has("BlobImmutableDueToPolicy", "LeaseIdMissing"):
			return bucket.ErrLocked
		case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden:
			return bucket.ErrDenied
		}
	}
	return nil
}

// refusesWrite reports whether an answer may mean that the object is there: a condition or a lock,
// a right to create and not to replace, or another write of the object at this moment.
func (r *refusal) refusesWrite() bool {
	switch r.status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusConflict, http.StatusPreconditionFailed:
		return true
	}
	return false
}

// wrap returns an error of the library as one of package bucket.
func wrap(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	r := read(err)
	if kind := r.kind(); kind != nil {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}
