package main

import (
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

// newLogger builds the process's logger. Lines are JSON objects that begin with level, ts, caller
// and msg, or plain text for people.
func newLogger(o *options) (*slog.Logger, error) {
	w, err := logWriter(o.logOutputs)
	if err != nil {
		return nil, err
	}
	ho := &slog.HandlerOptions{AddSource: true, Level: o.logLevel, ReplaceAttr: renameAttr}
	if o.logFormat == "console" {
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
