package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"vigil/tools/bench/hist"
	"vigil/tools/bench/load"
	"vigil/tools/bench/resource"
	"vigil/tools/bench/target"
)

// meter measures what the server uses between beginMetering and endMetering.
type meter struct {
	e       *Env
	servers []*target.Server
	began   time.Time
	cpu     []resource.CPU // by server
	own     time.Duration
	busy    time.Duration
	probe   *resource.DiskProbe
	sampler chan struct{} // closed to end the sampling of memory
	sampled chan struct{} // closed when it has ended
	profile chan error

	usage usage
}

// usage holds the measurements of a run.
type usage struct {
	Wall                time.Duration
	CPU, User, System   time.Duration
	Own                 time.Duration   // of this process
	Others              time.Duration   // of all other processes on the machine
	Memory              resource.Memory // at the end
	PeakAnon, PeakTotal int64           // highest seen in between
	Disk                *hist.Hist
}

func (e *Env) meter() *meter { return &meter{e: e, servers: []*target.Server{e.server}} }

// meterAll returns a meter of all members, which sums what they use.
func (e *Env) meterAll() *meter {
	return &meter{e: e, servers: append([]*target.Server{e.server}, e.others...)}
}

// memory returns the sum of the servers.
func (m *meter) memory() (sum resource.Memory, err error) {
	for _, s := range m.servers {
		mem, err := resource.ReadMemory(s.PID)
		if err != nil {
			return sum, err
		}
		sum.Anon += mem.Anon
		sum.Total += mem.Total
		sum.Peak += mem.Peak
	}
	return sum, nil
}

func (m *meter) readCPU() (list []resource.CPU, err error) {
	for _, s := range m.servers {
		c, err := resource.ReadCPU(s.PID)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// beginMetering starts measuring. If the run is to be profiled, so is what follows, for as long as
// the parameters say a measured part lasts.
func (m *meter) beginMetering() error {
	var err error
	if m.probe, err = resource.StartDiskProbe(m.e.Dir, m.e.Params.Pause); err != nil {
		return err
	}
	if m.e.ProfileTo != "" && m.profile == nil {
		m.profile = make(chan error, 1)
		go func() { m.profile <- m.e.fetchProfile() }()
	}
	m.sampler, m.sampled = make(chan struct{}), make(chan struct{})
	m.usage = usage{}
	go m.sample()
	m.own = resource.OwnCPU()
	if m.busy, err = resource.Busy(); err != nil {
		return err
	}
	m.began = time.Now()
	m.cpu, err = m.readCPU()
	return err
}

func (m *meter) sample() {
	defer close(m.sampled)
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		// endMetering reports a server that has ended.
		if mem, err := m.memory(); err == nil {
			m.usage.PeakAnon = max(m.usage.PeakAnon, mem.Anon)
			m.usage.PeakTotal = max(m.usage.PeakTotal, mem.Total)
		}
		select {
		case <-t.C:
		case <-m.sampler:
			return
		}
	}
}

// endMetering stops measuring.
func (m *meter) endMetering() error {
	now, err := m.readCPU()
	wall, own := time.Since(m.began), resource.OwnCPU()-m.own
	all, berr := resource.Busy()
	close(m.sampler)
	<-m.sampled
	disk, derr := m.probe.Stop()
	if err = errors.Join(err, derr, berr); err != nil {
		return err
	}
	u := &m.usage
	u.Wall, u.Own, u.Disk = wall, own, disk
	for i, c := range now {
		total, user, system := c.Since(m.cpu[i])
		u.CPU += total
		u.User += user
		u.System += system
	}
	u.Others = max(all-m.busy-u.CPU-own, 0)
	u.Memory, err = m.memory()
	return err
}

// addProfile waits for the profile, if there is one to come.
func (m *meter) addProfile() error {
	if m.profile == nil {
		return nil
	}
	return <-m.profile
}

// fetchProfile asks the server for a CPU profile of the next seconds.
func (e *Env) fetchProfile() error {
	seconds := max(int(e.Params.Duration/time.Second), 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+30)*time.Second)
	defer cancel()
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", e.server.Addr, seconds)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile: %s: %.200s", resp.Status, b)
	}
	return os.WriteFile(e.ProfileTo, b, 0o600)
}

const mib = 1 << 20

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func perOp(d time.Duration, n int64) float64 {
	if n == 0 {
		return 0
	}
	return micros(d) / float64(n)
}

// cost returns the processor time per operation of the server and of the client.
func (u *usage) cost(per string, n int64) []Figure {
	return []Figure{
		{Name: "server CPU per " + per, Unit: "µs", Value: perOp(u.CPU, n), Better: Lower},
		{Name: "server CPU, system part", Unit: "µs", Value: perOp(u.System, n), Better: Lower},
		{Name: "server processors busy", Unit: "", Value: u.CPU.Seconds() / u.Wall.Seconds()},
		{Name: "client CPU per " + per, Unit: "µs", Value: perOp(u.Own, n), Auxiliary: true},
	}
}

// memory is the server's.
func (u *usage) memory() []Figure {
	return []Figure{
		{Name: "RSS anonymous, end", Unit: "MiB", Value: float64(u.Memory.Anon) / mib,
			Better: Lower},
		{Name: "RSS anonymous, peak", Unit: "MiB", Value: float64(u.PeakAnon) / mib, Better: Lower},
		{Name: "RSS total, end", Unit: "MiB", Value: float64(u.Memory.Total) / mib, Better: Lower},
	}
}

// auxiliary returns the load of the machine by other programs, and the disk probe.
func (u *usage) auxiliary() []Figure {
	return []Figure{
		{Name: "processors busy with other programs", Unit: "",
			Value: u.Others.Seconds() / u.Wall.Seconds(), Auxiliary: true},
		{Name: "disk probe p50", Unit: "µs", Value: micros(u.Disk.Quantile(0.5)), Auxiliary: true},
		{Name: "disk probe max", Unit: "µs", Value: micros(u.Disk.Max()), Auxiliary: true},
	}
}

// latencies returns the percentiles of h.
func latencies(what string, h *hist.Hist) []Figure {
	f := func(name string, d time.Duration) Figure {
		return Figure{Name: what + " " + name, Unit: "µs", Value: micros(d), Better: Lower}
	}
	return []Figure{
		f("p50", h.Quantile(0.5)), f("p99", h.Quantile(0.99)), f("p99.9", h.Quantile(0.999)),
		f("max", h.Max()),
	}
}

// measureClosed runs a closed loop and gives its usual figures.
func (e *Env) measureClosed(ctx context.Context, conns load.Conns, inflight int, per string,
	newOp func(slot int) load.Op) (*load.Result, []Figure, error) {
	return e.measureClosedOn(ctx, e.meter(), "", conns, inflight, per, newOp)
}

// measureClosedOn is measureClosed with a meter, and with a method for requests that go to one
// stream of each slot.
func (e *Env) measureClosedOn(ctx context.Context, m *meter, stream string, conns load.Conns,
	inflight int, per string, newOp func(slot int) load.Op) (*load.Result, []Figure, error) {
	w := load.Window{Warmup: e.Params.Warmup, Duration: e.Params.Duration, Begin: m.beginMetering,
		End: m.endMetering}
	var r *load.Result
	var err error
	if stream == "" {
		r, err = load.Closed(ctx, conns, inflight, w, newOp)
	} else {
		r, err = load.ClosedStreams(ctx, conns, inflight, stream, w, newOp)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := m.addProfile(); err != nil {
		return nil, nil, err
	}
	f := []Figure{{Name: "throughput", Unit: per + "/s", Value: r.PerSecond(), Better: Higher}}
	f = append(f, m.usage.cost(per, r.Ops)...)
	f = append(f, latencies("latency", &r.Latency)...)
	f = append(f, m.usage.memory()...)
	return r, append(f, m.usage.auxiliary()...), nil
}

// measurePhase runs the pacer through its warm-up and one measured phase and gives its usual
// figures.
func (e *Env) measurePhase(ctx context.Context, p *load.Pacer, per string) (*load.Result, *usage,
	[]Figure, error) {
	if err := p.Wait(ctx, e.Params.Warmup); err != nil {
		return nil, nil, nil, err
	}
	m := e.meter()
	r, err := p.Phase(ctx, func() error {
		if err := m.beginMetering(); err != nil {
			return err
		}
		if err := p.Wait(ctx, e.Params.Duration); err != nil {
			return err
		}
		return m.endMetering()
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if err := m.addProfile(); err != nil {
		return nil, nil, nil, err
	}
	f := rates(r)
	f = append(f, latencies(per, &r.Latency)...)
	return r, &m.usage, f, nil
}

// rates returns the offered and achieved rate of an open loop, and the delay of its pacer.
func rates(r *load.Result) []Figure {
	return []Figure{
		{Name: "offered rate", Unit: "/s", Value: r.Offered, Auxiliary: true},
		{Name: "refused or timed out", Unit: "%",
			Value: 100 * float64(r.Refused) / max(float64(r.Refused+r.Ops), 1), Better: Lower},
		{Name: "achieved rate", Unit: "/s", Value: r.PerSecond(), Better: Higher},
		{Name: "pacer late p99", Unit: "µs", Value: micros(r.Late.Quantile(0.99)), Auxiliary: true},
	}
}
