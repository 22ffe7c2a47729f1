package snapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"vigil/internal/kv"
	"vigil/internal/offline/snapshot/boltfile"
)

var (
	// ErrCorrupt is wrapped by every error about the content of a file.
	ErrCorrupt = boltfile.ErrCorrupt
	// ErrNoHash: the file does not end with its hash, unlike a file that a member has sent.
	ErrNoHash = errors.New("snapshot missing hash but --skip-hash-check=false")
)

// hashUnit divides the size of a database without a hash at its end.
const hashUnit = 512

// hasHash reports whether a file of a size ends with the hash of the bytes before it.
func hasHash(size int64) bool { return size%hashUnit == sha256.Size }

// Options control how a file is read.
type Options struct {
	// SkipHash skips the comparison with the hash at the end, which may be missing.
	SkipHash bool
	// Progress, if set, is called with the number of bytes read. Their sum is about twice the size
	// of the file, or once with SkipHash.
	Progress func(bytes int64)
}

// File is a file that is being read. It is for one goroutine.
type File struct {
	db      *boltfile.Reader
	buckets []boltfile.Bucket
	// Contents is the content of the file except its records.
	Contents Contents
}

// Open checks the hash of a file of a size and reads everything but the records. Errors are those
// of r, ErrNoHash, and ErrCorrupt.
func Open(r io.ReaderAt, size int64, o Options) (*File, error) {
	body := size
	if hasHash(size) {
		body -= sha256.Size
	}
	switch {
	case o.SkipHash:
	case body == size:
		return nil, ErrNoHash
	default:
		if err := checkHash(r, body, o.Progress); err != nil {
			return nil, err
		}
	}
	f, err := open(r, body, o.Progress)
	if err != nil {
		return nil, err
	}
	var users authority
	for _, b := range f.buckets {
		if b.Name == bucketKey {
			continue
		}
		err := f.db.ForEach(b, func(k, v []byte) error {
			if err := f.Contents.addPair(&users, b.Name, k, v); err != nil {
				return fmt.Errorf("%w: bucket %s, key %q: %w", ErrCorrupt, b.Name, k, err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if f.Contents.Auth, err = users.state(); err != nil {
		return nil, fmt.Errorf("%w: users and roles: %w", ErrCorrupt, err)
	}
	return f, nil
}

// open reads the list of buckets.
func open(r io.ReaderAt, size int64, progress func(int64)) (*File, error) {
	db, err := boltfile.Open(r, size, progress)
	if err != nil {
		return nil, err
	}
	f := &File{db: db, Contents: Contents{Compact: -1}}
	if f.buckets, err = db.Buckets(); err != nil {
		return nil, err
	}
	if f.bucket(bucketKey) == nil {
		return nil, fmt.Errorf("%w: it has no bucket %q and is not a store of etcd 3",
			ErrCorrupt, bucketKey)
	}
	return f, nil
}

func (f *File) bucket(name string) *boltfile.Bucket {
	i := slices.IndexFunc(f.buckets, func(b boltfile.Bucket) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &f.buckets[i]
}

func checkHash(r io.ReaderAt, size int64, progress func(int64)) error {
	want := make([]byte, sha256.Size)
	if _, err := r.ReadAt(want, size); err != nil {
		return err
	}
	h := sha256.New()
	in := io.NewSectionReader(r, 0, size)
	for {
		n, err := io.CopyN(h, in, 1<<20)
		if progress != nil {
			progress(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if got := h.Sum(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("%w: expected sha256 %x, got %x: the file is not what the member has sent", ErrCorrupt, want, got)
	}
	return nil
}

// addPair reads a pair of one of the buckets, except the bucket of the records.
func (s *Contents) addPair(users *authority, bucket string, k, v []byte) (err error) {
	switch bucket + "/" + string(k) {
	case bucketMeta + "/" + keyIndex:
		s.Index, err = parseNumber(v)
		return err
	case bucketMeta + "/" + keyTerm:
		s.Term, err = parseNumber(v)
		return err
	case bucketMeta + "/" + keyStorageVersion:
		s.StorageVersion = string(v)
		return nil
	case bucketMeta + "/" + keyScheduled, bucketMeta + "/" + keyFinished:
		rev, _, err := parseRevision(v)
		s.Compact = max(s.Compact, rev.Main)
		return err
	case bucketCluster + "/" + keyClusterVersion:
		s.ClusterVersion = string(v)
		return nil
	case bucketAuth + "/" + keyAuthEnabled:
		users.enabled = bytes.Equal(v, []byte{1})
		return nil
	case bucketAuth + "/" + keyAuthRevision:
		users.revision, err = parseNumber(v)
		return err
	}
	switch bucket {
	case bucketLease:
		l, err := parseLease(k, v)
		s.Leases = append(s.Leases, l)
		return err
	case bucketAlarm:
		a, err := parseAlarm(k)
		s.Alarms = append(s.Alarms, a)
		return err
	case bucketUsers:
		return users.addUser(k, v)
	case bucketRoles:
		return users.addRole(k, v)
	}
	return nil
}

// Records calls fn with the records in order: data is an encoded mvccpb.KeyValue, for a deletion
// with key and revision only. It is valid during the call. Records ends at an error of fn. It is
// called once.
//
// A record without a key is skipped: etcdutl writes one, at the compact revision, when it raises
// the revision of a store.
func (f *File) Records(fn func(rev kv.Rev, tombstone bool, data []byte) error) error {
	var own []byte
	var last, raised int64
	err := f.db.ForEach(*f.bucket(bucketKey), func(k, v []byte) error {
		rev, tombstone, err := parseRevision(k)
		if err != nil {
			return fmt.Errorf("%w: bucket %s: %w", ErrCorrupt, bucketKey, err)
		}
		if len(v) == 0 && !tombstone {
			raised = rev.Main
			return nil
		}
		_, end, err := leadingKey(v)
		if err != nil {
			return fmt.Errorf("%w: bucket %s, revision %d.%d: %w", ErrCorrupt, bucketKey,
				rev.Main, rev.Sub, err)
		}
		if tombstone {
			own = protowire.AppendTag(append(own[:0], v[:end]...), fieldModRevision,
				protowire.VarintType)
			own = protowire.AppendVarint(own, uint64(rev.Main))
			v = own
		}
		last = rev.Main
		return fn(rev, tombstone, v)
	})
	if err == nil && raised > max(last, f.Contents.Compact) {
		err = fmt.Errorf("%w: bucket %s, revision %d: a record without a key that is not compacted",
			ErrCorrupt, bucketKey, raised)
	}
	return err
}

// fieldModRevision is the number of the field of mvccpb.KeyValue.
const fieldModRevision = 3

// Status is the status of a file in the terms of etcdutl.
type Status struct {
	// Hash is the CRC32C over the names of all buckets and their pairs.
	Hash uint32 `json:"hash"`
	// Revision is the revision of the newest record.
	Revision int64 `json:"revision"`
	// TotalKey is the number of existing keys, TotalSize the size of the database in bytes.
	TotalKey  int   `json:"totalKey"`
	TotalSize int64 `json:"totalSize"`
	// Version is the storage version; empty before etcd 3.6.
	Version string `json:"version"`
}

// ReadStatus reads a whole file of a size. It ignores the hash at its end.
func ReadStatus(r io.ReaderAt, size int64, progress func(int64)) (Status, error) {
	var st Status
	f, err := open(r, size, progress)
	if err != nil {
		return st, err
	}
	keys := map[string]struct{}{}
	st.TotalSize = f.db.Size()
	for _, b := range f.buckets {
		st.Hash = crc32.Update(st.Hash, castagnoli, []byte(b.Name))
		err := f.db.ForEach(b, func(k, v []byte) error {
			st.Hash = crc32.Update(st.Hash, castagnoli, k)
			st.Hash = crc32.Update(st.Hash, castagnoli, v)
			switch {
			case b.Name == bucketMeta && string(k) == keyStorageVersion:
				st.Version = string(v)
			case b.Name == bucketKey:
				rev, tombstone, err := parseRevision(k)
				if err != nil {
					return fmt.Errorf("%w: bucket %s: %w", ErrCorrupt, b.Name, err)
				}
				st.Revision = rev.Main
				key := []byte{}
				if len(v) > 0 {
					if key, _, err = leadingKey(v); err != nil {
						return fmt.Errorf("%w: bucket %s, revision %d.%d: %w", ErrCorrupt, b.Name,
							rev.Main, rev.Sub, err)
					}
				}
				if tombstone {
					delete(keys, string(key))
				} else {
					keys[string(key)] = struct{}{}
				}
			}
			return nil
		})
		if err != nil {
			return st, err
		}
	}
	st.TotalKey = len(keys)
	return st, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
