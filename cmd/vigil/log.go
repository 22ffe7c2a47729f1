package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// timeFormat is ISO 8601 with microseconds, as programs that read etcd's log expect.
const timeFormat = "2006-01-02T15:04:05.999999Z0700"

// logging says what is logged and where to.
type logging struct {
	level, format string
	outputs       []string
	rotate        bool
	rotation      string // JSON, see rotation
}

// rotation is when a log file is replaced by a new one, in the form of etcd's flag. Sizes are in
// megabytes, ages in days; 0 old files or days are no limit.
type rotation struct {
	MaxSize    int  `json:"maxsize"`
	MaxAge     int  `json:"maxage"`
	MaxBackups int  `json:"maxbackups"`
	LocalTime  bool `json:"localtime"`
	Compress   bool `json:"compress"`
}

const defaultRotation = `{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`

// levels are etcd's, by severity.
var levels = []string{"debug", "info", "warn", "error", "dpanic", "panic", "fatal"}

var slogLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	"dpanic": slog.LevelError + 4, "panic": slog.LevelError + 8, "fatal": slog.LevelError + 12}

func loggingFlags(o *options) []*option {
	l := &o.log
	return []*option{
		{name: "logger", value: "KIND", noEffect: "there is one kind, whose lines look like those of zap", get: func() string { return "zap" },
			set: func(s string) error {
				if s != "zap" {
					return errors.New("want zap")
				}
				return nil
			}},
		needed(list(&l.outputs, "log-outputs", "OUT,...", "stderr (default), stdout, or paths of files to append to")),
		oneOf(&l.level, "log-level", "least severity that is logged: debug, info, warn, error, panic or fatal", levels...),
		oneOf(&l.format, "log-format", "json, or console for people", "json", "console"),
		boolean(&l.rotate, "enable-log-rotation", "replace the log file by a new one from time to time"),
		str(&l.rotation, "log-rotation-config-json", "JSON", "when: maxsize in megabytes, maxage in days, maxbackups in files (0 for no limit), localtime, compress"),
		orDefault(&o.config.WarnUnaryDuration, "warning-unary-request-duration", "how long a unary call may take before that is logged"),
	}
}

// parseRotation reads the flag for rotation.
func (l *logging) parseRotation() (r rotation, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(l.rotation)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("--log-rotation-config-json: %w", err)
	}
	if r.MaxSize < 0 || r.MaxAge < 0 || r.MaxBackups < 0 {
		return r, errors.New("--log-rotation-config-json: maxsize, maxage and maxbackups must not be negative")
	}
	return r, nil
}

// files are the outputs that are files.
func (l *logging) files() (paths []string) {
	for _, out := range l.outputs {
		switch out {
		case "default", "stderr", "stdout", "systemd/journal":
		default:
			paths = append(paths, out)
		}
	}
	return paths
}

// validate reports everything that is wrong at once.
func (l *logging) validate() error {
	_, err := l.parseRotation()
	if n := len(l.files()); l.rotate && n != 1 {
		err = errors.Join(err, fmt.Errorf("--enable-log-rotation needs exactly one file among --log-outputs, which has %d", n))
	}
	return err
}

// newLogger builds the process's logger. Lines are JSON objects that begin with level, ts, caller
// and msg, or plain text for people.
func newLogger(l *logging) (*slog.Logger, error) {
	w, err := logWriter(l.outputs)
	if err != nil {
		return nil, err
	}
	ho := &slog.HandlerOptions{AddSource: true, Level: slogLevels[l.level], ReplaceAttr: renameAttr}
	if l.format == "console" {
		return slog.New(slog.NewTextHandler(w, ho)), nil
	}
	return slog.New(slog.NewJSONHandler(w, ho)), nil
}

// renameAttr gives slog's own attributes the names and forms of etcd's log.
func renameAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		return slog.String("ts", a.Value.Time().Format(timeFormat))
	case slog.LevelKey:
		if l, ok := a.Value.Any().(slog.Level); ok {
			return slog.String("level", strings.ToLower(l.String()))
		}
	case slog.SourceKey:
		if s, ok := a.Value.Any().(*slog.Source); ok {
			dir, file := filepath.Split(s.File)
			return slog.String("caller", filepath.Base(dir)+"/"+file+":"+strconv.Itoa(s.Line))
		}
	}
	return a
}

// logWriter opens the outputs: "default" and "stderr", "stdout", or files to append to.
func logWriter(outputs []string) (io.Writer, error) {
	var ws []io.Writer
	for _, out := range outputs {
		switch out {
		case "default", "stderr":
			ws = append(ws, os.Stderr)
		case "stdout":
			ws = append(ws, os.Stdout)
		default:
			f, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, fmt.Errorf("--log-outputs: %w", err)
			}
			ws = append(ws, f)
		}
	}
	if len(ws) == 1 {
		return ws[0], nil
	}
	return io.MultiWriter(ws...), nil
}
