package fsm

import (
	"errors"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

func TestVersions(t *testing.T) {
	b := newBox(t)
	v := func(minor uint32) kv.Version { return kv.Version{Major: 3, Minor: minor} }
	begin, end, set := kv.DowngradeBegin, kv.DowngradeEnd, kv.VersionSet
	for i, c := range []struct {
		op   kv.VersionOp
		v    kv.Version
		err  error
		want kv.Versions
	}{
		{end, v(0), kv.ErrNoDowngrade, kv.Versions{Cluster: v(7)}},
		{begin, v(5), kv.ErrDowngradeTarget, kv.Versions{Cluster: v(7)}},
		{begin, v(7), kv.ErrDowngradeTarget, kv.Versions{Cluster: v(7)}},
		{begin, kv.Version{Major: 2, Minor: 6}, kv.ErrDowngradeTarget, kv.Versions{Cluster: v(7)}},
		{begin, kv.Version{Major: 3, Minor: 1<<32 - 1}, kv.ErrDowngradeTarget, kv.Versions{Cluster: v(7)}},
		{begin, v(6), nil, kv.Versions{Cluster: v(7), Target: v(6)}},
		{begin, v(6), kv.ErrDowngradeInProcess, kv.Versions{Cluster: v(7), Target: v(6)}},
		{set, v(6), nil, kv.Versions{Cluster: v(6), Target: v(6)}},
		{begin, v(6), kv.ErrDowngradeTarget, kv.Versions{Cluster: v(6), Target: v(6)}},
		{begin, v(5), kv.ErrDowngradeInProcess, kv.Versions{Cluster: v(6), Target: v(6)}},
		{end, v(0), nil, kv.Versions{Cluster: v(6)}},
		{end, v(0), kv.ErrNoDowngrade, kv.Versions{Cluster: v(6)}},
		{set, v(6), nil, kv.Versions{Cluster: v(6)}},
		{begin, v(5), nil, kv.Versions{Cluster: v(6), Target: v(5)}},
	} {
		res := b.request(1, &Request{Version: &kv.VersionChange{Op: c.op, Version: c.v}})
		if !errors.Is(res.Err, c.err) {
			t.Errorf("step %d: %v, want %v", i, res.Err, c.err)
		}
		if got := b.m.Versions(); got != c.want {
			t.Errorf("step %d: %v, want %v", i, got, c.want)
		}
	}
	b.commit()
	before := b.m.Versions()
	b.reopen()
	if after := b.m.Versions(); after != before {
		t.Errorf("after reopening: %v, before: %v", after, before)
	}
}

// A leader proposes the level that the cluster should speak by what it has applied. Changes of the target may be in the log before that.
func TestLateVersionSet(t *testing.T) {
	v := func(minor uint32) kv.Version { return kv.Version{Major: 3, Minor: minor} }
	type change = kv.VersionChange
	cancelled := []change{{Op: kv.DowngradeBegin, Version: v(6)}, {Op: kv.DowngradeEnd}, {Op: kv.VersionSet, Version: v(6)}}
	again := []change{{Op: kv.DowngradeBegin, Version: v(6)}, {Op: kv.VersionSet, Version: v(6)}, {Op: kv.DowngradeEnd},
		{Op: kv.DowngradeBegin, Version: v(5)}, {Op: kv.VersionSet, Version: v(7)}}
	for _, c := range []struct {
		changes []change
		want    kv.Versions
	}{
		{cancelled, kv.Versions{Cluster: v(7)}},
		{again, kv.Versions{Cluster: v(6), Target: v(5)}},
		{append(again[:3:3], change{Op: kv.VersionSet, Version: v(7)}), kv.Versions{Cluster: v(7)}},
		{[]change{{Op: kv.VersionSet, Version: v(8)}, {Op: kv.VersionSet, Version: v(7)}}, kv.Versions{Cluster: v(8)}},
	} {
		b := newBox(t)
		for _, change := range c.changes {
			if res := b.request(1, &Request{Version: &change}); res.Err != nil {
				t.Error(res.Err)
			}
		}
		if got := b.m.Versions(); got != c.want {
			t.Errorf("%v: %v, want %v", c.changes, got, c.want)
		}
	}
}

func TestNextVersion(t *testing.T) {
	v := func(minor uint32) kv.Version { return kv.Version{Major: 3, Minor: minor} }
	for _, c := range []struct {
		is   kv.Versions
		want kv.Version
	}{
		{kv.Versions{Cluster: v(7)}, v(7)},
		{kv.Versions{Cluster: v(7), Target: v(6)}, v(6)},
		{kv.Versions{Cluster: v(6), Target: v(6)}, v(6)},
		{kv.Versions{Cluster: v(6)}, v(7)},
		{kv.Versions{Cluster: v(8)}, v(8)}, // not this program's to lower
	} {
		if got := c.is.Next(v(7)); got != c.want {
			t.Errorf("%v: %v, want %v", c.is, got, c.want)
		}
	}
}

func TestMalformedVersions(t *testing.T) {
	good := versionRecord(kv.Versions{Cluster: kv.Version{Major: 3, Minor: 300}, Target: kv.Version{Major: 1}})
	if v, err := parseVersions(good.Key, good.Value); err != nil || v.Cluster.Minor != 300 {
		t.Fatal(v, err)
	}
	for _, m := range []history.Meta{
		{Key: []byte("other"), Value: good.Value}, {Key: versionKey}, {Key: versionKey, Value: []byte{2, 0, 0, 0, 0}},
		{Key: versionKey, Value: good.Value[:len(good.Value)-1]}, {Key: versionKey, Value: append(good.Value[:len(good.Value):len(good.Value)], 0)},
		{Key: versionKey, Value: []byte{1, 0xff, 0xff, 0xff, 0xff, 0x1f, 0, 0, 0}},
	} {
		if _, err := parseVersions(m.Key, m.Value); !errors.Is(err, kv.ErrCorrupt) {
			t.Errorf("%x of %q: %v", m.Value, m.Key, err)
		}
	}
}
