package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"vigil/internal/kv"
)

const baseFormat = "vigil archive base"

// The kinds of parts, in JSON.
const (
	RecordsPart = "records"
	LivePart    = "live"
	MetaPart    = "meta"
)

// maxParts limits the parts of a base.
const maxParts = 1 << 17

// Part is an entry of a manifest: an object, and what is in it.
type Part struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Size int64  `json:"size"`
	// SHA256 is the SHA-256 of the whole object, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// A records part has the records of the revisions above After up to Through. A live part lists
	// records below revision Through. A meta part has 0 in both.
	After   int64 `json:"after"`
	Through int64 `json:"through"`
	// Items is the number of records, of revisions or of meta records; Content is their size before
	// compression.
	Items   uint64 `json:"items"`
	Content int64  `json:"content"`
}

// Member describes a member of the cluster, as information: a restore makes a new cluster.
type Member struct {
	ID         Hex64    `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs,omitempty"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	Learner    bool     `json:"learner,omitempty"`
}

// Base is the manifest of a base state: the state of the cluster after the entry Index.
//
// The records parts hold its records, in the order of their revisions and without a gap. A base
// names parts of an earlier base again. These may hold records that were compacted since, while no
// part any longer holds the deletion that made such a record needless: a member removes both. So if
// Compact is above the end of a part of an earlier base, the base needs live parts: they list, in
// the order of the revisions, every record below Compact that still counts. Of the records below
// Compact only the listed ones count; without live parts all records count.
type Base struct {
	Format  string `json:"format"` // baseFormat
	Version int    `json:"version"`
	Archive ID     `json:"archive"`
	Cluster Hex64  `json:"cluster"`
	Index   uint64 `json:"index"`
	Term    uint64 `json:"term"`
	// Claim is the newest claim that the sender had applied when the state was cut, or a later one.
	Claim Claim `json:"claim"`
	// Revision and Compact are the newest and the compact revision, -1 for none. RevisionTime is
	// when Revision was made, in milliseconds since 1970; 0 if that is not known.
	Revision     int64 `json:"revision"`
	RevisionTime int64 `json:"revisionTime"`
	Compact      int64 `json:"compact"`
	// Hash is mvcc.Store.HashAt(Revision, Compact) at the member that made the base.
	Hash uint32 `json:"hash"`
	// Time is when the state was cut, by the clock of the sender.
	Time    time.Time `json:"time"`
	Sender  Hex64     `json:"sender"`
	Members []Member  `json:"members"`
	// Parts are the records parts, then the live parts, then the meta parts.
	Parts    []Part `json:"parts"`
	Checksum string `json:"checksum"`
}

// NewBase returns a manifest without content for an archive.
func NewBase(id *Identity) Base {
	return Base{Format: baseFormat, Version: Version, Archive: id.Archive, Cluster: id.Cluster,
		Compact: -1, Members: []Member{}, Parts: []Part{}}
}

// Name returns the name of the object.
func (b *Base) Name() string { return BaseName(b.Index, b.Term) }

// Encode returns the bytes of the object.
func (b *Base) Encode() ([]byte, error) {
	b.Time = b.Time.UTC().Truncate(time.Millisecond)
	if err := b.check(); err != nil {
		return nil, fmt.Errorf("archive: base %d: %w", b.Index, err)
	}
	return encodeJSON(b, &b.Checksum)
}

// DecodeBase decodes the manifest of an archive.
func DecodeBase(id *Identity, name string, data []byte) (Base, error) {
	var b Base
	err := decodeJSON(data, &b, &b.Checksum, &b.Version)
	if err == nil {
		if err = b.check(); err != nil {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	switch {
	case err != nil:
	case b.Archive != id.Archive || b.Cluster != id.Cluster:
		err = fmt.Errorf("%w: it belongs to archive %s of cluster %s", ErrForeign,
			b.Archive, b.Cluster)
	case b.Name() != name:
		err = fmt.Errorf("%w: its name was %s", ErrForeign, b.Name())
	}
	if err != nil {
		return b, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// IdentityOf returns the part of the archive's identity that a manifest has: the ids.
func IdentityOf(name string, data []byte) (Identity, error) {
	var peek struct {
		Archive ID    `json:"archive"`
		Cluster Hex64 `json:"cluster"`
	}
	if err := json.Unmarshal(data, &peek); err != nil {
		return Identity{}, fmt.Errorf("%s: %w: %w", name, ErrDamaged, err)
	}
	id := Identity{Format: identityFormat, Version: Version, Archive: peek.Archive,
		Cluster: peek.Cluster}
	_, err := DecodeBase(&id, name, data)
	return id, err
}

// PartsOf returns the parts of a kind.
func (b *Base) PartsOf(kind string) []Part {
	var out []Part
	for _, p := range b.Parts {
		if p.Kind == kind {
			out = append(out, p)
		}
	}
	return out
}

// check checks what a reader relies on.
func (b *Base) check() error {
	switch {
	case b.Format != baseFormat:
		return fmt.Errorf("format %q", b.Format)
	case b.Archive == ID{} || b.Cluster == 0:
		return errors.New("the id of the archive or of the cluster is missing")
	case b.Index == 0 || b.Term == 0:
		return fmt.Errorf("index %d, term %d", b.Index, b.Term)
	case !b.Claim.covers(b.Term):
		return fmt.Errorf("term %d, and a claim of term %d", b.Term, b.Claim.Term)
	case b.RevisionTime < 0 || b.RevisionTime > kv.MaxTime:
		return fmt.Errorf("revision %d of the time %d", b.Revision, b.RevisionTime)
	case b.Revision < 1 || b.Compact < -1 || b.Compact > b.Revision:
		return fmt.Errorf("revision %d, compacted at %d", b.Revision, b.Compact)
	case len(b.Parts) > maxParts:
		return fmt.Errorf("%d parts, the most is %d", len(b.Parts), maxParts)
	}
	order := []string{RecordsPart, LivePart, MetaPart}
	end, kind, metas := int64(0), 0, 0
	for i := range b.Parts {
		p := &b.Parts[i]
		k := slices.Index(order, p.Kind)
		switch {
		case k < kind || !IsPartName(p.Name) || len(p.SHA256) != 64 || p.Size < HeaderSize ||
			p.Size > MaxObject || p.Content < 0 || p.Content > MaxContent:
			return fmt.Errorf("part %d (%s of kind %q and %d bytes)", i, p.Name, p.Kind, p.Size)
		case p.Kind == RecordsPart:
			if p.After != end || p.Through < p.After {
				return fmt.Errorf("part %d has revisions %d to %d and follows revision %d", i,
					p.After, p.Through, end)
			}
			end = p.Through
		case p.Kind == LivePart && p.Through != b.Compact:
			return fmt.Errorf("part %d lists records below revision %d, and the compact revision is %d", i, p.Through, b.Compact)
		case p.Kind == MetaPart:
			metas++
		}
		kind = k
	}
	switch {
	case metas == 0:
		return errors.New("there are no meta records")
	case end != b.Revision && (end != 0 || kind == 0):
		return fmt.Errorf("the parts end at revision %d, and the state has revision %d",
			end, b.Revision)
	}
	return nil
}
