package cloud

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/s3blob"

	"vigil/internal/bucket"
)

// prefix is full of the words of errors: what a user calls a bucket or a folder must not decide
// what an answer means.
const prefix = "WORM-AccessDenied-PreconditionFailed-NoSuchBucket-NotFound-ConditionalRequestConflict-ObjectLocked-retentionPolicyNotMet-no such host/"

// answer is an answer of a service: a status and its code.
type answer struct {
	status int
	code   string
}

// cloudServer is the part of a storage that knows one object, and answers one operation with an
// error.
type cloudServer struct {
	*httptest.Server
	write func(w http.ResponseWriter, r *http.Request, a answer) // an error in the service's form
	// the object, or what is known of it
	read func(w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	method string // of the requests for the object that fail: PUT, GET, HEAD or DELETE
	list   bool   // lists fail
	error  answer
	effect bool // a write takes effect before the error
	there  bool // the object exists
	calls  int  // requests that have failed
}

func (s *cloudServer) set(method string, list bool, a answer, effect, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.method, s.list, s.error, s.effect, s.there, s.calls = method, list, a, effect, there, 0
}

// fails counts a request of a method and reports the error that it has, and whether the object is
// there.
func (s *cloudServer) fails(method string, list bool) (a answer, fails, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fails = list && s.list || !list && method == s.method; fails {
		s.calls++
		if method == http.MethodPut && s.effect {
			s.there = true
		}
		if method == http.MethodDelete && s.effect {
			s.there = false
		}
	}
	return s.error, fails, s.there
}

func (s *cloudServer) has() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.there }

// cloudCase is a service in the table.
type cloudCase struct {
	name string
	// open starts a server and returns the bucket in it.
	open func(t *testing.T) (*cloudServer, bucket.Bucket)
	// absent is the definite answer that there is no object, exists that there is one.
	absent, exists answer
	// codes are all documented errors, by status.
	codes map[int]string
	// denied, locked and missing are the codes that must be ErrDenied, ErrLocked (of a deletion)
	// and ErrNotFound. All others are none of them, and are tried again.
	denied, locked, missing func(answer) bool
}

func startS3(t *testing.T) (*cloudServer, bucket.Bucket) {
	s := &cloudServer{}
	s.write = func(w http.ResponseWriter, r *http.Request, a answer) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(a.status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>of the service, about %s</Message><Resource>%s</Resource></Error>`, a.code, prefix, r.URL.Path)
		}
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		a, fails, there := s.fails(r.Method, r.URL.Query().Has("list-type"))
		switch {
		case fails:
			s.write(w, r, a)
		case r.Method == http.MethodPut && there:
			s.write(w, r, answer{412, "PreconditionFailed"})
		case r.Method == http.MethodPut:
		case !there:
			s.write(w, r, answer{404, "NoSuchKey"})
		default:
			w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
			w.Header().Set("Content-Length", "1")
			if r.Method != http.MethodHead {
				_, _ = w.Write([]byte("x"))
			}
		}
	}))
	t.Cleanup(s.Close)
	client := s3.New(s3.Options{BaseEndpoint: &s.URL, Region: "us-east-1", UsePathStyle: true,
		Retryer: aws.NopRetryer{}, Credentials: aws.AnonymousCredentials{}})
	b, err := s3blob.OpenBucket(t.Context(), client, "archive", nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, New(blob.PrefixedBucket(b, prefix))
}

func startGoogle(t *testing.T) (*cloudServer, bucket.Bucket) {
	s := &cloudServer{}
	s.write = func(w http.ResponseWriter, _ *http.Request, a answer) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		fmt.Fprintf(w, `{"error": {"code": %d, "message": "of the service, about %s", "errors": [{"reason": %q}]}}`, a.status, prefix, a.code)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		method, list := r.Method, r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/o")
		switch {
		case method == http.MethodPost:
			method = http.MethodPut
		case method == http.MethodGet && strings.Contains(r.URL.Path, "/o/"):
			method = http.MethodHead // what is known of the object
		}
		a, fails, there := s.fails(method, list)
		switch {
		case fails:
			s.write(w, r, a)
		case method == http.MethodPut && there:
			s.write(w, r, answer{412, "conditionNotMet"})
		case !there && method != http.MethodPut:
			s.write(w, r, answer{404, "notFound"})
		case method == http.MethodHead || method == http.MethodPut:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w,
				`{"name": "a", "bucket": "archive", "size": "1", "generation": "1", "metageneration": "1"}`)
		default:
			_, _ = w.Write([]byte("x"))
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(s.URL, "http://"))
	b, err := blob.OpenBucket(t.Context(),
		"gs://archive?prefix="+strings.ReplaceAll(prefix, " ", "%20"))
	if err != nil {
		t.Fatal(err)
	}
	var client *gcs.Client
	if !b.As(&client) {
		t.Fatal("it is not a bucket of Google's library")
	}
	client.SetRetry(gcs.WithPolicy(gcs.RetryNever))
	return s, New(b)
}

func startAzure(t *testing.T) (*cloudServer, bucket.Bucket) {
	s := &cloudServer{}
	s.write = func(w http.ResponseWriter, r *http.Request, a answer) {
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("x-ms-error-code", a.code)
		w.WriteHeader(a.status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>of the service, about %s</Message></Error>`, a.code, prefix)
		}
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		a, fails, there := s.fails(r.Method, r.URL.Query().Get("comp") == "list")
		switch {
		case fails:
			s.write(w, r, a)
		case r.Method == http.MethodPut && there:
			s.write(w, r, answer{409, "BlobAlreadyExists"})
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		case !there:
			s.write(w, r, answer{404, "BlobNotFound"})
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
			w.Header().Set("Content-Length", "1")
			w.Header().Set("Content-Range", "bytes 0-0/1")
			w.Header().Set("x-ms-blob-type", "BlockBlob")
			w.Header().Set("ETag", "1")
			w.Header().Set("x-ms-creation-time", time.Unix(1, 0).UTC().Format(http.TimeFormat))
			if r.Method != http.MethodHead {
				_, _ = w.Write([]byte("x"))
			}
		}
	}))
	t.Cleanup(s.Close)
	client, err := container.NewClientWithNoCredential(s.URL+"/archive",
		&container.ClientOptions{ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := azureblob.OpenBucket(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, New(blob.PrefixedBucket(b, prefix))
}

func oneOf(codes ...string) func(answer) bool {
	return func(a answer) bool { return slices.Contains(codes, a.code) }
}

var clouds = []cloudCase{{
	name: "s3", open: startS3, absent: answer{404, "NoSuchKey"},
	exists: answer{412, "PreconditionFailed"},
	// The list of S3's error codes.
	codes: map[int]string{
		301: "PermanentRedirect",
		307: "Redirect TemporaryRedirect",
		400: `AccessControlListNotSupported AccessPointNotOwnedByYou AmbiguousGrantByEmailAddress AuthorizationHeaderMalformed AuthorizationQueryParametersError BadDigest BucketHasAccessPointsAttached
			ConnectionClosedByRequester CredentialsNotSupported EntityTooLarge EntityTooSmall ExpiredToken IllegalLocationConstraintException IllegalVersioningConfigurationException IncompleteBody
			IncorrectEndpoint IncorrectNumberOfFilesInPostRequest InlineDataTooLarge InvalidAccessPoint InvalidAccessPointAliasError InvalidArgument InvalidBucketAclWithObjectOwnership InvalidBucketName
			InvalidBucketOwnerAWSAccountID InvalidDigest InvalidEncryptionAlgorithmError InvalidHostHeader InvalidHttpMethod InvalidLocationConstraint InvalidPart InvalidPartOrder InvalidPolicyDocument
			InvalidRegion InvalidRequest InvalidSessionException InvalidSignature InvalidSOAPRequest InvalidStorageClass InvalidTargetBucketForLogging InvalidTag InvalidToken InvalidURI KeyTooLongError
			KMS.DisabledException KMS.InvalidKeyUsageException KMS.KMSInvalidStateException KMS.NotFoundException MalformedACLError MalformedPOSTRequest MalformedXML MaxMessageLengthExceeded
			MaxPostPreDataLengthExceededError MetadataTooLarge MissingRequestBodyError MissingSecurityElement MissingSecurityHeader NoLoggingStatusForKey ObjectLockConfigurationNotFoundError ObjectLocked RequestIsNotMultiPartContent
			RequestTimeout RequestTorrentOfBucketError TokenCodeInvalidError TokenRefreshRequired TooManyAccessPoints TooManyBuckets UnexpectedContent UnexpectedIPError UnsupportedArgument UserKeyMustBeSpecified
			UnsupportedSignature InvalidBucketState X-Amz-Content-SHA256Mismatch`,
		403: `AccessDenied AccountProblem AllAccessDisabled CrossLocationLoggingProhibited InvalidAccessKeyId InvalidObjectState InvalidPayer InvalidSecurity NotSignedUp RequestTimeTooSkewed SignatureDoesNotMatch
			UnauthorizedAccess UnauthorizedAccessError ClientTokenConflict`,
		404: `NoSuchAccessPoint NoSuchAccessPointPolicy NoSuchBucket NoSuchBucketPolicy NoSuchCORSConfiguration NoSuchKey NoSuchLifecycleConfiguration NoSuchMultiRegionAccessPoint NoSuchObjectLockConfiguration
			NoSuchTagSet NoSuchUpload NoSuchVersion NoSuchWebsiteConfiguration OwnershipControlsNotFoundError ReplicationConfigurationNotFoundError ServerSideEncryptionConfigurationNotFoundError XAdminUserNotFound`,
		405: "MethodNotAllowed",
		409: `BucketAlreadyExists BucketAlreadyOwnedByYou BucketNotEmpty ConditionalRequestConflict DeviceNotActiveError InvalidBucketState OperationAborted RestoreAlreadyInProgress ObjectAlreadyInActiveTierError`,
		411: "MissingContentLength", 412: "PreconditionFailed", 416: "InvalidRange",
		429: "TooManyRequests",
		500: "InternalError", 501: "NotImplemented", 503: "Busy ServiceUnavailable SlowDown",
		502: "BadGateway", 504: "GatewayTimeout",
	},
	denied: func(a answer) bool {
		return a.status == 403 ||
			slices.Contains([]string{"ExpiredToken", "InvalidToken", "TokenRefreshRequired",
				"XAdminUserNotFound"}, a.code)
	},
	locked:  oneOf(),
	missing: oneOf("NoSuchKey", "NoSuchBucket"),
}, {
	name: "gs", open: startGoogle, absent: answer{404, "notFound"},
	exists: answer{412, "conditionNotMet"},
	// The list of HTTP status and error codes of the JSON API.
	codes: map[int]string{
		307: "temporaryRedirect",
		400: `badRequest badRequestException customerEncryptionAlgorithmIsInvalid customerEncryptionKeyFormatIsInvalid customerEncryptionKeyIsIncorrect customerEncryptionKeySha256IsInvalid invalid invalidAltValue invalidArgument
			invalidParameter notDownload notUpload parseError required resourceIsEncryptedWithCustomerEncryptionKey resourceNotEncryptedWithCustomerEncryptionKey turnedDown userProjectInconsistent userProjectInvalid
			userProjectMissing wrongUrlForUpload`,
		401: "authError AuthenticationRequiredRequesterPays lockedDomainExpired required",
		403: `accountDisabled countryBlocked forbidden insufficientPermissions objectUnderActiveHold retentionPolicyNotMet sslRequired stopChannelCallerNotOwner UserProjectAccessDenied UserProjectAccountProblem rateLimitExceeded
			userRateLimitExceeded quotaExceeded`,
		404: "notFound", 405: "methodNotAllowed", 408: "uploadBrokenConnection", 409: "conflict",
		410: "gone", 411: "lengthRequired", 412: "conditionNotMet orgPolicyConstraintFailed",
		413: "uploadTooLarge", 416: "requestedRangeNotSatisfiable",
		429: "usageLimits rateLimitExceeded userRateLimitExceeded", 499: "clientClosedRequest",
		500: "backendError internalError", 502: "badGateway", 503: "backendError",
		504: "gatewayTimeout",
	},
	denied: func(a answer) bool {
		return (a.status == 401 || a.status == 403) &&
			!slices.Contains([]string{"objectUnderActiveHold", "retentionPolicyNotMet",
				"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"}, a.code)
	},
	locked:  oneOf("objectUnderActiveHold", "retentionPolicyNotMet"),
	missing: oneOf("notFound"),
}, {
	name: "azblob", open: startAzure, absent: answer{404, "BlobNotFound"},
	exists: answer{409, "BlobAlreadyExists"},
	// The lists of common error codes and of those of the Blob service.
	codes: map[int]string{
		400: `ConditionHeadersNotSupported ContentLengthLargerThanTierLimit CopyAcrossAccountsNotSupported EmptyMetadataKey InfiniteLeaseDurationRequired InvalidAuthenticationInfo InvalidBlobOrBlock InvalidBlobTier InvalidBlobType
			InvalidBlockId InvalidBlockList InvalidHeaderValue InvalidHttpVerb InvalidInput InvalidMd5 InvalidMetadata InvalidQueryParameterValue InvalidResourceName InvalidSourceBlobUrl InvalidUri InvalidXmlDocument
			InvalidXmlNodeValue Md5Mismatch MetadataTooLarge MissingContentLengthHeader MissingRequiredQueryParameter MissingRequiredHeader MissingRequiredXmlNode MultipleConditionHeadersNotSupported OutOfRangeInput
			OutOfRangeQueryParameterValue RequestUrlFailedToParse UnsupportedHeader UnsupportedXmlNode UnsupportedQueryParameter Crc64Mismatch`,
		401: "InvalidAuthenticationInfo NoAuthenticationInformation",
		403: `AccountIsDisabled AuthenticationFailed AuthorizationFailure AuthorizationPermissionMismatch AuthorizationProtocolMismatch AuthorizationResourceTypeMismatch AuthorizationServiceMismatch AuthorizationSourceIPMismatch
			CannotVerifyCopySource InsufficientAccountPermissions UnauthorizedBlobOverwrite`,
		404: "BlobNotFound CannotVerifyCopySource ContainerNotFound ResourceNotFound",
		405: "UnsupportedHttpVerb BlobImmutableDueToPolicy",
		409: `AccountAlreadyExists AccountBeingCreated BlobAlreadyExists BlobArchived BlobBeingRehydrated BlobImmutableDueToPolicy BlobNotArchived BlobTierInadequateForContentLength BlobUsesCustomerSpecifiedEncryption
			BlockCountExceedsLimit CannotChangeToLowerTier ContainerAlreadyExists ContainerBeingDeleted ContainerDisabled FeatureVersionMismatch IncrementalCopyBlobMismatch InvalidOperation LeaseAlreadyPresent
			LeaseIdMismatchWithLeaseOperation LeaseIsBreakingAndCannotBeAcquired LeaseIsBrokenAndCannotBeRenewed LeaseNotPresentWithLeaseOperation NoPendingCopyOperation OperationNotAllowedOnIncrementalCopyBlob
			PendingCopyOperation ResourceAlreadyExists ResourceTypeMismatch SnapshotCountExceeded SnapshotOperationRateExceeded SnapshotsPresent SystemInUse`,
		412: `AppendPositionConditionNotMet BlobOverwritten ConditionNotMet LeaseIdMismatchWithBlobOperation LeaseIdMissing LeaseLost LeaseNotPresentWithBlobOperation MaxBlobSizeConditionNotMet SequenceNumberConditionNotMet
			SourceConditionNotMet TargetConditionNotMet`,
		413: "RequestBodyTooLarge", 416: "InvalidRange InvalidPageRange", 429: "TooManyRequests",
		500: "InternalError OperationTimedOut", 503: "ServerBusy",
	},
	denied:  func(a answer) bool { return a.status == 401 || a.status == 403 },
	locked:  oneOf("BlobImmutableDueToPolicy", "LeaseIdMissing"),
	missing: oneOf("BlobNotFound", "ContainerNotFound", "ResourceNotFound"),
}}

// TestDocumentedErrors: each error that a service documents, as the answer to each operation, for
// an object that is there and one that is not, with the effect of the operation and without.
// Nothing counts as stored that is not there, nothing as absent but by the answer that says so, and
// nothing as locked or denied but by its code, whatever names and messages say.
func TestDocumentedErrors(t *testing.T) {
	kinds := []error{bucket.ErrExists, bucket.ErrNotFound, bucket.ErrDenied, bucket.ErrLocked}
	for _, c := range clouds {
		t.Run(c.name, func(t *testing.T) {
			s, b := c.open(t)
			defer b.Close()
			n := 0
			for status, list := range c.codes {
				for code := range strings.FieldsSeq(list) {
					a := answer{status, code}
					for _, op := range []string{"put", "get", "list", "delete"} {
						for _, there := range []bool{false, true} {
							for _, effect := range []bool{false, true} {
								if effect && op != "put" && op != "delete" {
									continue
								}
								n++
								s.set(map[string]string{"put": "PUT", "get": "GET",
									"delete": "DELETE"}[op], op == "list", a, effect, there)
								var err error
								switch op {
								case "put":
									err = b.Put(t.Context(), "a", []byte("x"))
								case "get":
									var r io.ReadCloser
									if r, err = b.Get(t.Context(), "a", 0); err == nil {
										_, err = io.ReadAll(r)
										_ = r.Close()
									}
								case "list":
									_, err = b.List(t.Context(), "", "", 10)
								case "delete":
									err = b.Delete(t.Context(), "a")
								}
								what := fmt.Sprintf("%d %s, %s, the object is there: %v, with effect: %v: %v", status, code, op, there, effect, err)
								if s.calls == 0 && op == "delete" && !there &&
									errors.Is(err, bucket.ErrNotFound) {
									continue // the library has looked before
								}
								if s.calls == 0 {
									t.Fatalf("%s: nothing has failed", what)
								}
								if err == nil {
									t.Errorf("%s: no error", what)
								}
								if op == "put" && errors.Is(err, bucket.ErrExists) != (s.has() &&
									lookedUp(status)) {
									t.Errorf("%s: ErrExists, the object is there now: %v", what,
										s.has())
								}
								var want error
								switch {
								case op == "put" && errors.Is(err, bucket.ErrExists):
									want = bucket.ErrExists
								case c.missing(a):
									want = bucket.ErrNotFound
								case c.name == "gs" && op == "get" &&
									status == http.StatusForbidden:
									want = bucket.ErrDenied // the library does not read the reason
								case c.locked(a) && op != "put":
									want = bucket.ErrLocked
								case c.denied(a):
									want = bucket.ErrDenied
								}
								for _, k := range kinds {
									if errors.Is(err, k) != (k == want) {
										t.Errorf("%s: want %v", what, want)
									}
								}
							}
						}
					}
				}
			}
			t.Logf("%d answers", n)
		})
	}
}

// lookedUp reports whether an answer of a status to a write is looked up: the others are repeated.
func lookedUp(status int) bool { return slices.Contains([]int{400, 403, 405, 409, 412}, status) }

// TestLookupFails: while it is not known whether an object is there, it does not count as stored.
func TestLookupFails(t *testing.T) {
	for _, c := range clouds {
		t.Run(c.name, func(t *testing.T) {
			s, b := c.open(t)
			defer b.Close()
			for _, code := range []answer{{403, "AccessDenied"}, {403, "forbidden"},
				{500, "InternalError"}, {404, "NoSuchWord"}} {
				s.set("HEAD", false, code, false, true)
				err := b.Put(t.Context(), "a", []byte("x"))
				if err == nil || errors.Is(err, bucket.ErrExists) {
					t.Errorf("the look ends with %v: %v", code, err)
				}
				if s.calls == 0 {
					t.Errorf("%v: nobody has looked", code)
				}
			}
		})
	}
}

// TestNoAnswer: a name that cannot be resolved and a port where nobody listens say nothing about an
// object.
func TestNoAnswer(t *testing.T) {
	client, err := container.NewClientWithNoCredential("http://account.invalid/archive",
		&container.ClientOptions{ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := azureblob.OpenBucket(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	buckets := map[string]bucket.Bucket{"a name": New(blob.PrefixedBucket(inner, prefix))}
	for _, c := range clouds {
		s, b := c.open(t)
		s.Close()
		buckets[c.name] = b
	}
	for name, b := range buckets {
		_, get := b.Get(t.Context(), "a", 0)
		_, list := b.List(t.Context(), "", "", 10)
		for op, err := range map[string]error{"put": b.Put(t.Context(), "a", []byte("x")),
			"get": get, "list": list, "delete": b.Delete(t.Context(), "a")} {
			for _, k := range []error{nil, bucket.ErrExists, bucket.ErrNotFound, bucket.ErrDenied,
				bucket.ErrLocked} {
				if errors.Is(err, k) {
					t.Errorf("%s: %s: %v is %v", name, op, err, k)
				}
			}
		}
	}
}

// TestAttempts: Google's library makes a limited number of requests for a call that fails.
func TestAttempts(t *testing.T) {
	s, _ := startGoogle(t)
	b, err := Open(t.Context(), "gs://archive?prefix=prod/")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s.set("HEAD", false, answer{503, "backendError"}, false, true)
	if _, err := b.Get(t.Context(), "a", 1); err == nil || s.calls != attempts {
		t.Errorf("%d requests, %v", s.calls, err)
	}
	s.set("PUT", false, answer{503, "backendError"}, false, false)
	if err := b.Put(t.Context(), "a", []byte("x")); err == nil || s.calls != 1 {
		t.Errorf("%d requests, %v", s.calls, err)
	}
}
