package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"vigil/server"
)

// notify tells systemd, if it started the process and wants to know.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot tell systemd", "state", state, "error", err)
	}
}

// tellSystemd says that the member serves once it does, and from then on, if the unit has WatchdogSec, that
// it is alive as long as it answers reads.
func tellSystemd(ctx context.Context, m *server.Member, log *slog.Logger) {
	select {
	case <-m.Serving():
	case <-ctx.Done():
		return
	}
	notify(log, daemon.SdNotifyReady)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog is not fed", "error", err)
		return
	}
	if interval == 0 {
		return
	}
	// Three signs of life in the time, of which two may be lost.
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
			log.Warn("systemd's watchdog is not fed: the member answers no reads", "error", err)
		default:
			notify(log, daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
