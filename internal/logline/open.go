package logline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
	"gopkg.in/natefinch/lumberjack.v2"
)

// The outputs that are no files.
const (
	Default = "default" // Stderr
	Stderr  = "stderr"
	Stdout  = "stdout"
	Journal = "systemd/journal"
)

// Config says what is logged and where to.
type Config struct {
	// Level is the least severity that is logged.
	Level slog.Leveler
	// Console makes lines for people instead of JSON.
	Console bool
	// Outputs are the constants above, or paths of files to append to. None is Default.
	Outputs []string
	// Rotation, if set, is when a file is replaced by a new one.
	Rotation *Rotation
}

// Rotation is when a log file is replaced by a new one, in the form of etcd's flag. Sizes are in
// megabytes, 0 being 100, ages in days; 0 old files or days are no limit.
type Rotation struct {
	MaxSize    int  `json:"maxsize"`
	MaxAge     int  `json:"maxage"`
	MaxBackups int  `json:"maxbackups"`
	LocalTime  bool `json:"localtime"`
	Compress   bool `json:"compress"`
}

// ParseRotation reads the form of the command line.
func ParseRotation(s string) (r Rotation, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	if r.MaxSize < 0 || r.MaxAge < 0 || r.MaxBackups < 0 {
		return r, errors.New("maxsize, maxage and maxbackups must not be negative")
	}
	return r, nil
}

// Files are the outputs that are files.
func (c *Config) Files() (paths []string) {
	for _, out := range c.Outputs {
		switch out {
		case Default, Stderr, Stdout, Journal:
		default:
			paths = append(paths, out)
		}
	}
	return paths
}

// Log is where lines go.
type Log struct {
	handler *handler
	files   []reopener
}

// reopener is an output that is a file.
type reopener interface {
	sink
	reopen() error
	close() error
}

// Open opens the outputs.
func Open(c Config) (*Log, error) {
	if c.Level == nil {
		c.Level = slog.LevelInfo
	}
	l := &Log{handler: &handler{level: c.Level, console: c.Console, mu: new(sync.Mutex), sites: newSites()}}
	outputs := slices.Clone(c.Outputs)
	if len(outputs) == 0 {
		outputs = []string{Default}
	}
	for i, out := range outputs {
		if out == Default {
			outputs[i] = Stderr
		}
	}
	slices.Sort(outputs)
	for _, out := range slices.Compact(outputs) {
		s, err := open(out, c.Rotation)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("log output %s: %w", out, err), l.Close())
		}
		l.handler.sinks = append(l.handler.sinks, s)
		if f, ok := s.(reopener); ok {
			l.files = append(l.files, f)
		}
	}
	return l, nil
}

func open(out string, r *Rotation) (sink, error) {
	switch out {
	case Stderr:
		return stream{os.Stderr}, nil
	case Stdout:
		return stream{os.Stdout}, nil
	case Journal:
		if !journal.Enabled() {
			return nil, errors.New("there is no journal to write to")
		}
		return toJournal{}, nil
	}
	// Whether it can be written to is known now, and not when it is needed.
	f := &file{path: out}
	if err := f.reopen(); err != nil || r == nil {
		return f, err
	}
	if err := f.close(); err != nil {
		return nil, err
	}
	return &rotated{lumberjack.Logger{Filename: out, MaxSize: r.MaxSize, MaxAge: r.MaxAge, MaxBackups: r.MaxBackups,
		LocalTime: r.LocalTime, Compress: r.Compress}}, nil
}

// Handler makes records lines.
func (l *Log) Handler() slog.Handler { return l.handler }

// Reopen opens the files anew by their names, for a program that has moved them away. What cannot be
// opened goes on being written where it was.
func (l *Log) Reopen() error {
	l.handler.mu.Lock()
	defer l.handler.mu.Unlock()
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.reopen())
	}
	return errors.Join(errs...)
}

// Close closes the files. Lines to them are lost from then on.
func (l *Log) Close() error {
	l.handler.mu.Lock()
	defer l.handler.mu.Unlock()
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}

// stream is an output that is open anyway.
type stream struct{ io.Writer }

func (s stream) write(_ slog.Level, line []byte) { _, _ = s.Write(line) }

// file is a file to append to. Guarded by the handler's lock.
type file struct {
	path string
	f    *os.File
}

func (f *file) write(_ slog.Level, line []byte) { _, _ = f.f.Write(line) }

func (f *file) reopen() error {
	n, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if f.f != nil {
		f.f.Close()
	}
	f.f = n
	return nil
}

func (f *file) close() error { return f.f.Close() }

// rotated is a file that is replaced from time to time.
type rotated struct{ lumberjack.Logger }

func (r *rotated) write(_ slog.Level, line []byte) { _, _ = r.Write(line) }

// reopen lets go of the file; the next line opens it.
func (r *rotated) reopen() error { return r.Logger.Close() }
func (r *rotated) close() error  { return r.Logger.Close() }

// toJournal is systemd's journal, with the severity beside the line.
type toJournal struct{}

func (toJournal) write(level slog.Level, line []byte) {
	priority := journal.PriErr
	switch {
	case level < slog.LevelInfo:
		priority = journal.PriDebug
	case level < slog.LevelWarn:
		priority = journal.PriInfo
	case level < slog.LevelError:
		priority = journal.PriWarning
	}
	_ = journal.Send(string(bytes.TrimSuffix(line, []byte{'\n'})), priority, map[string]string{"SYSLOG_IDENTIFIER": "vigil"})
}
