package logline

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// timeFormat is ISO 8601 with microseconds, as programs that read etcd's log expect.
const timeFormat = "2006-01-02T15:04:05.999999Z0700"

// MaxFields is the number of bytes of attributes after which a line takes no further one. A group is one.
const MaxFields = 16 << 10

// sink takes whole lines.
type sink interface {
	write(level slog.Level, line []byte)
}

// handler turns records into lines. It is immutable but for what the sinks do.
type handler struct {
	level   slog.Leveler
	console bool
	sinks   []sink
	// mu is shared by the handlers that were made of one, so that lines come in one order everywhere. sites too;
	// without it there is no bound on the number of lines.
	mu    *sync.Mutex
	sites *sites
	// fields are the encoded attributes of With, within the groups opened by then, open in number; groups
	// are opened by the next attribute.
	fields []byte
	open   int
	groups []string
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	if h.sites != nil && r.Level >= slog.LevelInfo {
		left, ok := h.sites.take(&r)
		if !ok {
			return nil
		}
		if left > 0 {
			r.AddAttrs(slog.Uint64("lines-left-out", left))
		}
	}
	buf := buffers.Get().(*[]byte)
	b := (*buf)[:0]
	if h.console {
		b = h.appendConsole(b, &r)
	} else {
		b = h.appendJSON(b, &r)
	}
	b = append(b, '\n')
	h.mu.Lock()
	for _, s := range h.sinks {
		s.write(r.Level, b)
	}
	h.mu.Unlock()
	if cap(b) <= 64<<10 {
		*buf = b
		buffers.Put(buf)
	}
	return nil
}

func (h *handler) appendJSON(b []byte, r *slog.Record) []byte {
	b = append(b, `{"level":"`...)
	b = append(b, levelName(r.Level)...)
	if !r.Time.IsZero() {
		b = append(b, `","ts":"`...)
		b = r.Time.Round(0).AppendFormat(b, timeFormat)
	}
	b = append(b, '"')
	if c := caller(r.PC); c != "" {
		b = appendString(append(b, `,"caller":`...), c)
	}
	b = appendString(append(b, `,"msg":`...), cutAt(r.Level).of(r.Message))
	b = h.appendFields(b, r)
	return append(b, '}')
}

func (h *handler) appendConsole(b []byte, r *slog.Record) []byte {
	if !r.Time.IsZero() {
		b = append(r.Time.Round(0).AppendFormat(b, timeFormat), '\t')
	}
	b = append(append(b, levelName(r.Level)...), '\t')
	if c := caller(r.PC); c != "" {
		b = append(append(b, c...), '\t')
	}
	b = append(b, oneLine(cutAt(r.Level).of(r.Message))...)
	from := len(b)
	if b = h.appendFields(b, r); len(b) > from {
		// The first field brings a comma.
		b = append(slices.Insert(b, from, '\t'), '}')
		b[from+1] = '{'
	}
	return b
}

// appendFields appends the attributes, each behind a comma.
func (h *handler) appendFields(b []byte, r *slog.Record) []byte {
	b = append(b, h.fields...)
	open, c, from := h.open, cutAt(r.Level), len(b)
	if r.NumAttrs() > 0 {
		for _, name := range h.groups {
			b = append(c.appendKey(b, name), '{')
			open++
		}
	}
	left := 0
	r.Attrs(func(a slog.Attr) bool {
		if len(b)-from > MaxFields {
			left++
		} else {
			b = c.appendAttr(b, a)
		}
		return true
	})
	if left > 0 {
		b = strconv.AppendInt(c.appendKey(b, "attributes-left-out"), int64(left), 10)
	}
	for range open {
		b = append(b, '}')
	}
	return b
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	c := *h
	c.fields, c.groups = slices.Clone(h.fields), nil
	for _, name := range h.groups {
		c.fields = append(cut(MaxString).appendKey(c.fields, name), '{')
		c.open++
	}
	for _, a := range attrs {
		c.fields = cut(MaxString).appendAttr(c.fields, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.groups = append(slices.Clone(h.groups), name)
	return &c
}

// levelName is etcd's name of a level.
func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}

// caller is the file with its folder, and the line.
func caller(pc uintptr) string {
	if pc == 0 {
		return ""
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if frame.File == "" {
		return ""
	}
	dir, file := filepath.Split(frame.File)
	return filepath.Base(dir) + "/" + file + ":" + strconv.Itoa(frame.Line)
}

var lineEnds = strings.NewReplacer("\n", `\n`, "\r", `\r`)

func oneLine(s string) string { return lineEnds.Replace(s) }
