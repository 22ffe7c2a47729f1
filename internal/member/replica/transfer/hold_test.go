package transfer

import (
	"context"
	"log/slog"
	"testing"

	"vigil/internal/member/raftnode"
)

func TestTheLogIsKeptForMembersThatLag(t *testing.T) {
	s := NewSender(Options{MaxSending: 2, Logger: slog.New(slog.DiscardHandler)})
	defer s.Close()
	type members = map[uint64]raftnode.Progress
	const first, most = 20, 1000
	at := func(cut uint64, bytes int64, p members) uint64 {
		return s.LimitTruncation(cut, Log{First: first, Bytes: bytes, Most: most, Progress: p})
	}
	for what, c := range map[string]struct {
		bytes int64
		p     members
		want  uint64
	}{
		"all are up to date": {10, members{2: {Match: 105, Active: true}}, 100},
		"one lags": {10,
			members{2: {Match: 60, Active: true}, 3: {Match: 80, Active: true}}, 60},
		"one lags, and is not there":  {10, members{2: {Match: 60}}, 100},
		"its next entry is the first": {10, members{2: {Match: 19, Active: true}}, 19},
		"its next entry is gone":      {10, members{2: {Match: 18, Active: true}}, 100},
		"it is new":                   {10, members{2: {Active: true}}, 100},
		"the log is too large": {most + 1,
			members{2: {Match: 60, Active: true}}, 100},
		"another member leads": {10, nil, 100},
		"a learner lags": {10,
			members{2: {Match: 60, Active: true, Learner: true}}, 60},
		"it lags by more than there is memory": {10, members{2: {Match: 25, Active: true}}, 25},
	} {
		if got := at(100, c.bytes, c.p); got != c.want {
			t.Errorf("%s: kept from %d on, want %d", what, got, c.want)
		}
	}
	if got := at(mostEntries+100, 10,
		members{2: {Match: 60, Active: true}}); got != mostEntries+100 {
		t.Errorf("%d entries are kept", mostEntries+100-got)
	}

	// A member that was sent a snapshot needs the entries after it until it has caught up, also
	// while it is restarted to install it.
	done := make(chan struct{})
	s.beginTransfer(2, func(context.Context) error { s.noteCut(2, 70); <-done; return nil })
	await(t, "the snapshot is cut",
		func() bool { return at(100, 10, members{2: {Match: 5}}) == 70 })
	close(done)
	await(t, "the end of the transfer", func() bool { return s.Stats().Sending == 0 })
	for i, c := range []struct {
		p    raftnode.Progress
		want uint64
	}{
		{raftnode.Progress{Match: 5}, 70}, {raftnode.Progress{Match: 5, Active: true}, 70},
		{raftnode.Progress{Match: 5}, 70},
		{raftnode.Progress{Match: 70, Active: true}, 70},
		{raftnode.Progress{Match: 90, Active: true}, 90},
		{raftnode.Progress{Match: 100, Active: true}, 100}, {raftnode.Progress{Match: 90}, 100},
	} {
		if got := at(100, 10, members{2: c.p}); got != c.want {
			t.Errorf("step %d: kept from %d on, want %d", i, got, c.want)
		}
	}
}
