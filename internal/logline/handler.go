package logline

import (
	"context"
	"log/slog"
	"math"

	"go.uber.org/zap/exp/zapslog"
)

// handler bounds the number and the texts of records, and passes them to zap's handler. If sites is
// nil, the number is not bounded.
type handler struct {
	zap   slog.Handler
	root  slog.Handler // without attributes and groups, for lines about other lines
	level slog.Level
	sites *sites
}

func newHandler(level slog.Level, console bool, out *outputs, s *sites) *handler {
	zap := zapslog.NewHandler(newCore(console, out), zapslog.WithCaller(true),
		zapslog.AddStacktraceAt(noStacktrace))
	return &handler{zap, zap, level, s}
}

// noStacktrace is above every level.
const noStacktrace slog.Level = math.MaxInt

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	var dropped uint64
	if h.sites != nil && r.Level >= slog.LevelInfo {
		var ok bool
		if dropped, ok = h.sites.admit(&r); !ok {
			return nil
		}
		for _, quiet := range h.sites.quiet() {
			_ = h.root.Handle(ctx, quiet)
		}
	}
	message, fields := newBound(r.Level), newBound(r.Level)
	bounded := slog.NewRecord(r.Time, r.Level, message.cut(r.Message), r.PC)
	left := 0
	r.Attrs(func(a slog.Attr) bool {
		if fields.bytes > MaxFields {
			left++
		} else if a, ok := fields.attr(a); ok {
			bounded.AddAttrs(a)
		}
		return true
	})
	if dropped > 0 {
		bounded.AddAttrs(slog.Uint64("lines-left-out", dropped))
	}
	if left > 0 {
		bounded.AddAttrs(slog.Int("attributes-left-out", left))
	}
	return h.zap.Handle(ctx, bounded)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	b := newBound(slog.LevelInfo)
	return h.with(h.zap.WithAttrs(b.attrs(attrs)))
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	b := newBound(slog.LevelInfo)
	return h.with(h.zap.WithGroup(b.cut(name)))
}

func (h *handler) with(zap slog.Handler) slog.Handler {
	c := *h
	c.zap = zap
	return &c
}
