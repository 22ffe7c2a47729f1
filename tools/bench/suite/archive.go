package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/hist"
	"vigil/tools/bench/load"
)

func archiveScenarios() []Scenario {
	return []Scenario{
		{Name: "put-archive",
			About: "2,000 puts/s with an archive in a directory in memory, as it is not on the disk of the data, compared with puts to a server without; each twice, in turns; etcd has none: -b none", VigilOnly: true, Run: putArchive},
	}
}

// noise puts values that do not compress.
type noise struct {
	*putter
	values *rand.ChaCha8
}

func newNoise(slot, size int) load.Op {
	var seed [32]byte
	seed[0], seed[1] = byte(slot), byte(slot>>8)
	return &noise{newPutter(slot, spread, size, nil), rand.NewChaCha8(seed)}
}

func (n *noise) Next(buf []byte) (string, []byte, bool) {
	n.key = appendKey(n.key[:0], n.rng.IntN(n.keys))
	_, _ = n.values.Read(n.value)
	return api.Put, api.AppendPut(buf, n.key, n.value), true
}

// archived is what a server says about its archive.
type archived struct {
	LagRevisions int64  `json:"lag_revisions"`
	Archived     uint64 `json:"archived_index"`
	Bytes        int64  `json:"bytes"`
	EntryBytes   int64  `json:"entry_bytes"`
	Objects      int64  `json:"objects"`
	Bases        int64  `json:"bases"`
}

// archivedNow asks the server.
func (e *Env) archivedNow(ctx context.Context) (a archived, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+e.server.Addr+"/debug/archive", nil)
	if err != nil {
		return a, err
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return a, fmt.Errorf("archive: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("archive: %s: %s has none", resp.Status, e.Build.Name)
	}
	return a, json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&a)
}

// awaitArchived waits until the archive has a state and all that was written, and returns what the
// server says then.
func (e *Env) awaitArchived(ctx context.Context) (archived, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		a, err := e.archivedNow(ctx)
		if err != nil || a.Archived > 0 && a.LagRevisions == 0 {
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, fmt.Errorf("not archived: %+v", a)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// archiveTurn is one part of the comparison.
type archiveTurn struct {
	result *load.Result
	usage  usage
	puts   int64
	sent   archived
}

// bucketDir returns a new directory for an archive: in memory if the system has a place for it,
// else below the one that is given.
func bucketDir(other string) (string, error) {
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		if parent, err = filepath.Abs(other); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(parent, "vigil-archive-")
}

// archiveTurn runs puts against a new server, with an archive or without.
func (e *Env) archiveTurn(ctx context.Context, rate float64, dir string,
	with bool) (*archiveTurn, error) {
	if e.server != nil {
		if err := e.stop(); err != nil {
			return nil, err
		}
	}
	own, args := e.Dir, e.Args
	defer func() { e.Dir, e.Args = own, args }()
	e.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	bucket, err := bucketDir(dir)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(bucket)
	if with {
		e.Args = append(append([]string{}, args...), "--archive=file://"+bucket)
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, 20, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	from, err := e.revision(ctx, cs[0])
	if err != nil {
		return nil, err
	}
	if with {
		if _, err := e.awaitArchived(ctx); err != nil {
			return nil, err
		}
	}
	p, err := load.Start(cs, rate,
		func(slot int) load.Op { return newNoise(slot, e.Params.ValueSize) }, nil)
	if err != nil {
		return nil, err
	}
	if err := p.Wait(ctx, e.Params.Warmup); err != nil {
		return nil, err
	}
	m := e.meter()
	t := &archiveTurn{}
	t.result, err = p.Phase(ctx, func() error {
		if err := m.beginMetering(); err != nil {
			return err
		}
		if err := p.Wait(ctx, e.Params.Duration/2); err != nil {
			return err
		}
		return m.endMetering()
	})
	if err != nil {
		return nil, err
	}
	if t.puts, err = p.Stop(ctx); err != nil {
		return nil, err
	}
	if err := m.addProfile(); err != nil {
		return nil, err
	}
	t.usage = m.usage
	if err := e.checkWrites(ctx, cs[0], from, t.puts); err != nil {
		return nil, err
	}
	if with {
		if t.sent, err = e.awaitArchived(ctx); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func putArchive(ctx context.Context, e *Env) ([]Figure, error) {
	const rate = 2000
	var without, with hist.Hist
	var last [2]*archiveTurn // without, with
	var cpu [2]time.Duration
	var ops [2]int64
	profile := e.ProfileTo
	for turn := range 4 {
		e.ProfileTo = ""
		if turn == 1 {
			e.ProfileTo = profile
		}
		t, err := e.archiveTurn(ctx, rate,
			filepath.Join(e.Dir, fmt.Sprint("turn", turn)), turn%2 == 1)
		if err != nil {
			return nil, err
		}
		to := &without
		if turn%2 == 1 {
			to = &with
		}
		to.Merge(&t.result.Latency)
		last[turn%2] = t
		cpu[turn%2] += t.usage.CPU
		ops[turn%2] += t.result.Ops
	}
	c := compared{without: without, with: with, last: last[1].result, usage: last[1].usage,
		rssWithout: last[0].usage.Memory.Anon}
	f := c.figures()
	written := float64(last[1].puts) * float64(len(appendKey(nil, 0))+e.Params.ValueSize)
	sent := last[1].sent
	return append([]Figure{
		{Name: "bytes sent per byte of keys and values", Value: float64(sent.Bytes) / written,
			Better: Lower},
		{Name: "bytes of entries per byte of keys and values",
			Value: float64(sent.EntryBytes) / written, Better: Lower},
		{Name: "objects a second", Value: float64(sent.Objects) * rate / float64(last[1].puts),
			Better: Lower},
		{Name: "server CPU per put, with ÷ without",
			Value: perOp(cpu[1], ops[1]) / max(perOp(cpu[0], ops[0]), 0.001), Better: Lower},
	}, f...), nil
}
