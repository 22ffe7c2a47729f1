package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/member/archiver"
	"vigil/internal/store/archive"
)

// Archive is the continuous archive of the cluster. All members have the same.
type Archive struct {
	// URL is the bucket: file:///DIRECTORY, which must exist, or what the program vigil-bucket
	// accepts. Empty for no archive.
	URL string
	// Recipients are public keys of age to which the objects are encrypted; none for no encryption.
	Recipients []string
	// Interval is the time between two transfers of entries. MaxLagBytes limits the part of the
	// raft log that the member keeps only for the archive.
	Interval    time.Duration
	MaxLagBytes int64
	// BaseInterval and BaseBytes are the time and the size of sent entries after which a new base
	// state is made.
	BaseInterval time.Duration
	BaseBytes    int64
	// FullInterval is the time after which records shared by base states are sent again.
	FullInterval time.Duration
	// Program is the program vigil-bucket; default the one next to this program, then in PATH.
	Program string
}

// minArchiveInterval is the least Archive.Interval: each object costs requests.
const minArchiveInterval = 100 * time.Millisecond

func (a *Archive) setDefaults() {
	or(&a.Interval, archiver.DefaultInterval)
	or(&a.MaxLagBytes, archiver.DefaultMaxLagBytes)
	or(&a.BaseInterval, archiver.DefaultBaseInterval)
	or(&a.BaseBytes, archiver.DefaultBaseBytes)
	or(&a.FullInterval, archiver.DefaultFullInterval)
}

func (a *Archive) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if a.URL != "" {
		// The errors of package url contain the URL, which may be secret.
		switch u, err := url.Parse(a.URL); {
		case err != nil || u.Scheme == "":
			bad("--archive: it is not a URL such as file:///srv/archive or " +
				"s3://BUCKET?region=REGION&prefix=NAME/")
		case u.Scheme == "file" && u.Host != "" && u.User == nil:
			bad("--archive: %q: a directory is file:///DIRECTORY with three slashes", a.URL)
		case u.User != nil:
			bad("--archive: a user or a password does not belong into the URL: set the " +
				"environment variables of the cloud's programs")
		}
	}
	if err := archive.CheckRecipients(a.Recipients); err != nil {
		bad("--archive-recipient: %w", err)
	}
	if a.Interval < minArchiveInterval {
		bad("--archive-interval: %v is below %v", a.Interval, minArchiveInterval)
	}
	if a.MaxLagBytes < 0 {
		bad("--archive-max-lag-bytes: %d is negative", a.MaxLagBytes)
	}
	if a.BaseInterval < time.Second {
		bad("--archive-base-interval: %v is below 1s", a.BaseInterval)
	}
	if a.BaseBytes < 1<<20 {
		bad("--archive-base-bytes: %d is below %d", a.BaseBytes, 1<<20)
	}
	if a.FullInterval < time.Second {
		bad("--archive-full-interval: %v is below 1s", a.FullInterval)
	}
	return errors.Join(errs...)
}

// archiving is the member's archiver. A member without an archive has one too, which appoints
// others while the member leads.
type archiving struct {
	hold     *archiver.Hold // nil without an archive
	archiver *archiver.Archiver
	cancel   context.CancelFunc
	done     chan struct{}
}

// openArchive makes the archiver.
func (m *Member) openArchive() (err error) {
	c, h := &m.cfg.Archive, m.replica.Header()
	o := archiver.Options{
		ClusterID: h.ClusterID, MemberID: h.MemberID,
		Source: m.replica.Source, Calls: m.transport,
		Hold:    m.archive.hold,
		Address: bucket.Show(c.URL), Place: c.URL, Recipients: c.Recipients,
		Interval: c.Interval, BaseInterval: c.BaseInterval, BaseBytes: c.BaseBytes,
		FullInterval: c.FullInterval,
		Logger:       m.log,
	}
	if c.URL != "" {
		o.Open = func(ctx context.Context) (bucket.Bucket, error) {
			return bucket.Open(ctx, c.URL, bucket.Options{Program: c.Program, Logger: m.log})
		}
	}
	m.archive.archiver, err = archiver.New(o)
	return err
}

// archiverWithBucket returns the archiver of a member with an archive, nil without.
func (m *Member) archiverWithBucket() *archiver.Archiver {
	if m.cfg.Archive.URL == "" {
		return nil
	}
	return m.archive.archiver
}

// startArchive starts the archiver.
func (m *Member) startArchive() {
	ctx, cancel := context.WithCancel(context.Background())
	m.archive.cancel, m.archive.done = cancel, make(chan struct{})
	go func() {
		defer close(m.archive.done)
		m.archive.archiver.Run(ctx)
	}()
}

// stopArchive ends it, before the connections to other members and the pipeline end. It takes a few
// seconds at most.
func (m *Member) stopArchive() {
	if m.archive.cancel != nil {
		m.archive.cancel()
		<-m.archive.done
	}
}
