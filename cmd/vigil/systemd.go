package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"vigil/server"
)

// notify sends a state to systemd if systemd started the process and expects it.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot notify systemd", "state", state, "error", err)
	}
}

// notifySystemd tells systemd when the member starts to serve. If the unit has WatchdogSec, it then
// reports that the member is alive, as long as the member answers reads.
func notifySystemd(ctx context.Context, m *server.Member, log *slog.Logger) {
	select {
	case <-m.Serving():
	case <-ctx.Done():
		return
	}
	notify(log, daemon.SdNotifyReady)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("cannot notify systemd's watchdog", "error", err)
		return
	}
	if interval == 0 {
		return
	}
	// There are three notifications in each interval: two may be lost.
	every := max(interval/3, time.Millisecond)
	for tick := time.NewTicker(every); ; {
		alive, cancel := context.WithTimeout(ctx, every)
		err := m.Alive(alive)
		cancel()
		switch {
		case ctx.Err() != nil:
			tick.Stop()
			return
		case err != nil:
			log.Warn("systemd's watchdog is not notified: the member answers no reads", "error",
				err)
		default:
			notify(log, daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
