package resource

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vigil/tools/bench/hist"

	"golang.org/x/sys/unix"
)

// DiskProbe writes 4 KiB and syncs it, repeatedly with a pause, concurrently with everything else
// that uses the file system, so that a stall of the disk is not taken for one of a server.
type DiskProbe struct {
	path string
	stop chan struct{}
	done chan struct{}
	// Owned by the probe's goroutine until done is closed.
	lat hist.Hist
	err error
}

// StartDiskProbe begins probing the file system of dir: once at least, and then once per pause.
func StartDiskProbe(dir string, pause time.Duration) (*DiskProbe, error) {
	p := &DiskProbe{path: filepath.Join(dir, "disk-probe"), stop: make(chan struct{}),
		done: make(chan struct{})}
	f, err := os.OpenFile(p.path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		defer f.Close()
		defer os.Remove(p.path)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		block := make([]byte, 4096)
		for i := 0; ; i++ {
			began := time.Now()
			if _, p.err = f.WriteAt(block, int64(i%256)*int64(len(block))); p.err != nil {
				return
			}
			if p.err = unix.Fdatasync(int(f.Fd())); p.err != nil {
				return
			}
			p.lat.Record(time.Since(began))
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return p, nil
}

// Stop ends the probe and returns what it measured.
func (p *DiskProbe) Stop() (*hist.Hist, error) {
	close(p.stop)
	<-p.done
	if p.err != nil {
		return nil, fmt.Errorf("disk probe: %w", p.err)
	}
	return &p.lat, nil
}
