package fsm

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// versionBucket holds the record of kv.Versions under versionKey: a version byte, then major and
// minor version of the cluster and of the target, as uvarint. Without the record, firstVersions
// holds.
const (
	versionBucket byte = 'v'
	versionFormat byte = 1
)

var versionKey = []byte("api")

// firstVersions is part of the format: later programs begin with it too.
var firstVersions = kv.Versions{Cluster: kv.Version{Major: 3, Minor: 7}}

func versionRecord(v kv.Versions) history.Meta {
	b := []byte{versionFormat}
	for _, n := range [...]uint32{v.Cluster.Major, v.Cluster.Minor, v.Target.Major,
		v.Target.Minor} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return history.Meta{Bucket: versionBucket, Key: versionKey, Value: b}
}

func parseVersions(key, value []byte) (kv.Versions, error) {
	malformed := fmt.Errorf("fsm: %w: version record %x of %q", kv.ErrCorrupt, value, key)
	if string(key) != string(versionKey) || len(value) == 0 || value[0] != versionFormat {
		return kv.Versions{}, malformed
	}
	d := Decoder{b: value[1:]}
	v := kv.Versions{Cluster: d.readVersion(), Target: d.readVersion()}
	if d.bad || len(d.b) != 0 {
		return kv.Versions{}, malformed
	}
	return v, nil
}

func (m *Machine) loadVersions(log *history.Log) (err error) {
	m.versions = firstVersions
	for k, v := range log.Meta(versionBucket) {
		if m.versions, err = parseVersions(k, v); err != nil {
			return err
		}
	}
	return nil
}

// Versions returns the level of the API that the cluster speaks, the open batch included.
func (m *Machine) Versions() kv.Versions { return m.versions }

func (m *Machine) changeVersion(c kv.VersionChange) error {
	next := m.versions
	switch c.Op {
	case kv.DowngradeBegin:
		if err := next.CheckDowngrade(c.Version); err != nil {
			return err
		}
		next.Target = c.Version
	case kv.DowngradeEnd:
		if next.Target == (kv.Version{}) {
			return kv.ErrNoDowngrade
		}
		next.Target = kv.Version{}
	case kv.VersionSet:
		// The proposer may not have known changes that precede this one in the log. This change has
		// no effect then, and the leader looks again.
		if next.Next(c.Version) == c.Version {
			next.Cluster = c.Version
		}
	}
	if next == m.versions {
		return nil
	}
	if err := m.store.SetMeta(versionRecord(next)); err != nil {
		return err
	}
	m.versions = next
	return nil
}

func appendVersionChange(b []byte, c *kv.VersionChange) []byte {
	b = append(b, byte(c.Op))
	b = binary.AppendUvarint(b, uint64(c.Version.Major))
	return binary.AppendUvarint(b, uint64(c.Version.Minor))
}

func (d *Decoder) readVersionChange() {
	d.version = kv.VersionChange{Op: kv.VersionOp(d.byte()), Version: d.readVersion()}
	if d.version.Op < kv.DowngradeBegin || d.version.Op > kv.VersionSet {
		d.fail()
	}
	d.req.Version = &d.version
}

func (d *Decoder) readVersion() kv.Version {
	major, minor := d.uvarint(), d.uvarint()
	if major>>32 != 0 || minor>>32 != 0 {
		d.fail()
	}
	return kv.Version{Major: uint32(major), Minor: uint32(minor)}
}
