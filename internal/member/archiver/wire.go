package archiver

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"vigil/internal/store/archive"
)

var le = binary.LittleEndian

// wireVersion begins calls and answers. It is part of the protocol between members, as
// docs/formats/peer.md describes.
const (
	wireVersion  = 1
	callSize     = 8 + 3*8 + 16
	answerSize   = 8 + 5*8 + 16
	maxErrorText = 200
)

// order is the leader's message to each member in every orderInterval: who archives, and up to
// which index the archive is complete.
type order struct {
	// term is the leader's term, which it has claimed.
	term uint64
	// appointee is the member that archives, 0 while the leader does not know one.
	appointee uint64
	// archived is the index up to which the archive id needs nothing more, 0 if the leader does not
	// know it.
	archived uint64
	id       archive.ID
}

func (o *order) encode() []byte {
	b := append(make([]byte, 0, callSize), wireVersion, 0, 0, 0, 0, 0, 0, 0)
	for _, v := range [...]uint64{o.term, o.appointee, o.archived} {
		b = le.AppendUint64(b, v)
	}
	return append(b, o.id[:]...)
}

func decodeOrder(b []byte) (o order, err error) {
	if len(b) != callSize || b[0] != wireVersion {
		return o, fmt.Errorf("archiver: order of %d bytes: %x", len(b), b[:min(len(b), 8)])
	}
	v := func(i int) uint64 { return le.Uint64(b[8+8*i:]) }
	o = order{term: v(0), appointee: v(1), archived: v(2), id: archive.ID(b[callSize-16:])}
	if o.term == 0 {
		return o, fmt.Errorf("archiver: order of term 0")
	}
	return o, nil
}

// report is a member's answer to an order: its own state.
type report struct {
	// has: the member has an archive at all. appointed: the member archives. ready: it has reached
	// the bucket and may archive; it is not ready while it does not know the bucket, or the archive
	// is refused. vacant: the bucket that it has reached has no archive.
	has, appointed, ready, vacant bool
	// known: archived is set.
	known bool
	// first is the index of the first entry of its raft log, applied its applied position.
	first, applied uint64
	// archived is the index up to which the archive id needs nothing, revision the newest revision
	// then, as far as it knows.
	id       archive.ID
	archived uint64
	revision int64
	// failing is how long every attempt has failed, 0 if the last one succeeded. text is the
	// reason, or the reason for refusing the archive.
	failing time.Duration
	text    string
}

const (
	flagAppointed = 1 << iota
	flagReady
	flagKnown
	flagVacant
	flagHas
)

func (r *report) encode() []byte {
	var flags byte
	for i, set := range [...]bool{r.appointed, r.ready, r.known, r.vacant, r.has} {
		if set {
			flags |= 1 << i
		}
	}
	text := r.text[:min(len(r.text), maxErrorText)]
	b := append(make([]byte, 0, answerSize+len(text)), wireVersion, flags, 0, 0, 0, 0, 0,
		byte(len(text)))
	for _, v := range [...]uint64{r.first, r.applied, r.archived, uint64(r.revision),
		uint64(r.failing.Milliseconds())} {
		b = le.AppendUint64(b, v)
	}
	return append(append(b, r.id[:]...), text...)
}

func decodeReport(b []byte) (r report, err error) {
	if len(b) < answerSize || b[0] != wireVersion || len(b) != answerSize+int(b[7]) {
		return r, fmt.Errorf("archiver: report of %d bytes: %x", len(b), b[:min(len(b), 8)])
	}
	v := func(i int) uint64 { return le.Uint64(b[8+8*i:]) }
	millis := func(i int) time.Duration {
		return time.Duration(min(v(i), uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
	}
	return report{
		appointed: b[1]&flagAppointed != 0, ready: b[1]&flagReady != 0, known: b[1]&flagKnown != 0,
		vacant: b[1]&flagVacant != 0, has: b[1]&flagHas != 0,
		first: v(0), applied: v(1), archived: v(2), revision: int64(v(3)), failing: millis(4),
		id: archive.ID(b[answerSize-16:]), text: string(b[answerSize:]),
	}, nil
}
