// Package meter counts what one write request reads, writes and visits, and checks it against
// limits.
package meter

import (
	"errors"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// Limits bounds what one write request may do. The limits decide the outcome of requests, so they
// must be equal on all members: programs use the defaults, tests may set others.
type Limits struct {
	// RecordBytes bounds a record: a key with its value, or a meta record. Default 256 MiB less 1
	// byte, the largest record of history.
	RecordBytes int
	// ChangeBytes bounds the records of one revision, and the meta records of one request. Default
	// 512 MiB.
	ChangeBytes int64
	// ResultBytes bounds the records that the ranges of a transaction read, and the previous pairs
	// that a request asks for. Default 256 MiB.
	ResultBytes int64
	// VisitedKeys bounds the keys that the ranges and compares of a transaction visit. Default
	// 1,048,576.
	VisitedKeys int64
}

// The default limits.
const (
	MaxRecordBytes = history.MaxRecordBytes
	MaxChangeBytes = 512 << 20
	MaxResultBytes = 256 << 20
	MaxVisitedKeys = 1 << 20
)

func (l Limits) WithDefaults() Limits {
	if l.RecordBytes == 0 {
		l.RecordBytes = MaxRecordBytes
	}
	if l.ChangeBytes == 0 {
		l.ChangeBytes = MaxChangeBytes
	}
	if l.ResultBytes == 0 {
		l.ResultBytes = MaxResultBytes
	}
	if l.VisitedKeys == 0 {
		l.VisitedKeys = MaxVisitedKeys
	}
	return l
}

func (l Limits) Validate() error {
	if l.RecordBytes < 0 || l.RecordBytes > MaxRecordBytes || l.ChangeBytes < 0 ||
		l.ChangeBytes > MaxChangeBytes ||
		l.ResultBytes < 0 || l.VisitedKeys < 0 {
		return fmt.Errorf("mvcc: Limits %+v: RecordBytes is at most %d, ChangeBytes at most %d, none is negative", l, MaxRecordBytes, MaxChangeBytes)
	}
	return nil
}

// Meter adds up the quantities of one request.
type Meter struct {
	Limits  Limits
	Written int64
	Result  int64
	Visited int64
	// Rough is set while the writer estimates the results of ranges and does not read them. If a
	// limit rejects the request then, the writer runs it again and reads them.
	Rough bool
}

// ErrRough means that an estimate has exceeded a limit, which the true number may not exceed.
var ErrRough = errors.New("mvcc: estimate above a limit")

func (m *Meter) Reset() { *m = Meter{Limits: m.Limits} }

// Record checks the size of the data of one record.
func (m *Meter) Record(size int) error {
	if size <= m.Limits.RecordBytes {
		return nil
	}
	return &kv.LimitError{What: "bytes of a key with its value, or of a record of the cluster",
		Limit: int64(m.Limits.RecordBytes), Advice: "store less in it"}
}

// Change checks that n more bytes of records may be written.
func (m *Meter) Change(n int64) error {
	if n <= m.Limits.ChangeBytes-m.Written {
		return nil
	}
	return &kv.LimitError{What: "bytes that one request writes, with a record for each deleted key and a copy of each value that is kept", Limit: m.Limits.ChangeBytes, Advice: "split the request"}
}

// Write counts a record. The caller checks it first with Record and Change.
func (m *Meter) Write(size int) { m.Written += int64(size) + history.RecordOverhead }

// Read counts bytes of results.
func (m *Meter) Read(n int64) error {
	m.Result += n
	if m.Result <= m.Limits.ResultBytes {
		return nil
	}
	if m.Rough {
		return ErrRough
	}
	return &kv.LimitError{What: "bytes that one write request reads", Limit: m.Limits.ResultBytes,
		Advice: "read less in it, or read outside of it"}
}

// Visit counts visited keys. Only keys that exist at the revision of the read count: members drop
// others from the index at different times.
func (m *Meter) Visit(n int64) error {
	m.Visited += n
	if m.Visited <= m.Limits.VisitedKeys {
		return nil
	}
	if m.Rough {
		return ErrRough
	}
	return &kv.LimitError{What: "keys that the ranges and compares of one write transaction visit",
		Limit: m.Limits.VisitedKeys, Advice: "read fewer keys in it, or read outside of it"}
}

// IsLimit reports whether an error is a *kv.LimitError, so that the request must be undone.
func IsLimit(err error) bool {
	if err == nil {
		return false // avoids the allocation of limit
	}
	var limit *kv.LimitError
	return errors.As(err, &limit)
}
