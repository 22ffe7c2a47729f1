package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/state/record"
)

// Version 1 of the record of a member:
//
//	version u8 = 1 | flags u8 | name | n uvarint, n peer URLs | n uvarint, n client URLs
//
// where a text is its length as uvarint and its bytes. With the flag level, the level follows as
// uvarint. A removed id has the flag removed and no fields.
//
// A later version adds a flag for each new field, which follows the fields of all lower flags. This
// program keeps unknown flags, with everything after the fields that it knows: members publish
// their attributes when they start, even while members of older versions are in the cluster, and
// all must store the same. A field that every member must understand requires a level (package
// fsm).
const (
	recordVersion = 1

	flagLearner = 1 << 0
	flagRemoved = 1 << 1
	flagLevel   = 1 << 2
	knownFlags  = flagLearner | flagRemoved | flagLevel
)

var errRecord = errors.New("cluster: malformed record")

// Record is the stored record of an id.
type Record struct {
	ID    uint64
	Value []byte
}

// Key returns the key of a record: the id, big endian.
func (r Record) Key() []byte { return binary.BigEndian.AppendUint64(nil, r.ID) }

// Records returns the records that rebuild s, sorted by key.
func (s *State) Records() []Record {
	out := make([]Record, 0, len(s.members)+len(s.removed))
	r := s.removed
	for _, m := range s.members {
		for len(r) > 0 && r[0] < m.ID {
			out = append(out, Record{ID: r[0], Value: encodeRemoved()})
			r = r[1:]
		}
		out = append(out, Record{ID: m.ID, Value: EncodeMember(m)})
	}
	for _, id := range r {
		out = append(out, Record{ID: id, Value: encodeRemoved()})
	}
	return out
}

// Load adds a stored record to s. It rebuilds a State from its records, in any order, before s is
// shared.
func (s *State) Load(key, value []byte) error {
	if len(key) != 8 {
		return fmt.Errorf("%w: key of %d bytes", errRecord, len(key))
	}
	id := binary.BigEndian.Uint64(key)
	if _, found := s.find(id); found || s.Removed(id) {
		return fmt.Errorf("%w: two records of id %x", errRecord, id)
	}
	m, removed, err := decodeRecord(id, value)
	if err != nil {
		return fmt.Errorf("member %x: %w", id, err)
	}
	if removed {
		at, _ := slices.BinarySearch(s.removed, id)
		s.removed = slices.Insert(s.removed, at, id)
		return nil
	}
	next, _, err := s.Change(Change{Op: Add, Member: m})
	if err != nil {
		return fmt.Errorf("member %x: %w", id, err)
	}
	*s = *next
	return nil
}

func encodeRemoved() []byte { return []byte{recordVersion, flagRemoved} }

// EncodeMember encodes everything of m but its id.
func EncodeMember(m Member) []byte {
	flags := byte(0)
	if m.Learner {
		flags |= flagLearner
	}
	if m.Level != 0 {
		flags |= flagLevel
	}
	b := []byte{recordVersion, flags | m.later.flags}
	b = record.AppendBytes(b, m.Name)
	b = appendTexts(b, m.PeerURLs)
	b = appendTexts(b, m.ClientURLs)
	if m.Level != 0 {
		b = binary.AppendUvarint(b, m.Level)
	}
	return append(b, m.later.fields...)
}

// DecodeMember decodes the result of EncodeMember.
func DecodeMember(id uint64, b []byte) (Member, error) {
	m, removed, err := decodeRecord(id, b)
	if err == nil && removed {
		err = fmt.Errorf("%w: of a removed member", errRecord)
	}
	return m, err
}

func decodeRecord(id uint64, b []byte) (m Member, removed bool, err error) {
	if len(b) < 2 {
		return m, false, errRecord
	}
	if b[0] != recordVersion {
		return m, false, fmt.Errorf("%w: version %d, this program knows %d", errRecord,
			b[0], recordVersion)
	}
	flags := b[1]
	b = b[2:]
	m.ID = id
	if flags == flagRemoved {
		if len(b) != 0 {
			return m, false, errRecord
		}
		return m, true, nil
	}
	if flags&flagRemoved != 0 {
		return m, false, fmt.Errorf("%w: flags %x", errRecord, flags)
	}
	m.Learner = flags&flagLearner != 0
	r := record.NewReader(b)
	m.Name = r.Text()
	m.PeerURLs = readTexts(r)
	m.ClientURLs = readTexts(r)
	if flags&flagLevel != 0 {
		if m.Level = r.Uvarint(); m.Level == 0 {
			r.Fail()
		}
	}
	if m.later.flags = flags &^ knownFlags; m.later.flags != 0 {
		m.later.fields = r.Rest()
	}
	if !r.Complete() {
		return Member{}, false, errRecord
	}
	return m, false, nil
}

func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = record.AppendBytes(b, s)
	}
	return b
}

func readTexts(r *record.Reader) (list []string) {
	for range r.Count() {
		list = append(list, r.Text())
	}
	return list
}

// EncodeConfState encodes raft's configuration: version u8 = 1, auto-leave u8, then
// voters, learners, outgoing voters and next learners, each as count and ids in uvarint.
func EncodeConfState(cs *raftpb.ConfState) []byte {
	b := []byte{recordVersion, 0}
	if cs.GetAutoLeave() {
		b[1] = 1
	}
	for _, ids := range [][]uint64{cs.GetVoters(), cs.GetLearners(), cs.GetVotersOutgoing(),
		cs.GetLearnersNext()} {
		b = binary.AppendUvarint(b, uint64(len(ids)))
		for _, id := range ids {
			b = binary.AppendUvarint(b, id)
		}
	}
	return b
}

// DecodeConfState decodes the result of EncodeConfState.
func DecodeConfState(b []byte) (*raftpb.ConfState, error) {
	if len(b) < 2 || b[0] != recordVersion || b[1] > 1 {
		return nil, fmt.Errorf("cluster: malformed configuration state")
	}
	cs := &raftpb.ConfState{}
	if b[1] == 1 {
		cs.AutoLeave = new(true)
	}
	r := record.NewReader(b[2:])
	for _, ids := range []*[]uint64{&cs.Voters, &cs.Learners, &cs.VotersOutgoing,
		&cs.LearnersNext} {
		for range r.Count() {
			*ids = append(*ids, r.Uvarint())
		}
	}
	if !r.Complete() {
		return nil, fmt.Errorf("cluster: malformed configuration state")
	}
	return cs, nil
}
