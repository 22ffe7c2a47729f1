package logline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/coreos/go-systemd/v22/journal"
	"gopkg.in/natefinch/lumberjack.v2"
)

// Outputs other than files.
const (
	Default = "default" // Stderr
	Stderr  = "stderr"
	Stdout  = "stdout"
	Journal = "systemd/journal"
)

// Config configures Open.
type Config struct {
	// Level is the lowest severity to log. The zero value is slog.LevelInfo.
	Level slog.Level
	// Console writes lines for people instead of JSON.
	Console bool
	// Outputs are the constants above, or paths of files to append to. An empty list is Default.
	Outputs []string
	// Rotation, if set, replaces a large or old file with a new one.
	Rotation *Rotation
}

// Rotation says when to replace a log file with a new one, in the form of etcd's flag. Sizes are in
// megabytes, where 0 means 100, and ages in days. 0 days or 0 old files mean no limit.
type Rotation struct {
	MaxSize    int  `json:"maxsize"`
	MaxAge     int  `json:"maxage"`
	MaxBackups int  `json:"maxbackups"`
	LocalTime  bool `json:"localtime"`
	Compress   bool `json:"compress"`
}

// ParseRotation parses the JSON of etcd's flag.
func ParseRotation(s string) (r Rotation, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, errors.New(`want JSON such as {"maxsize": 100, "compress": true}; see vigil --help for its names`)
	}
	if r.MaxSize < 0 || r.MaxAge < 0 || r.MaxBackups < 0 {
		return r, errors.New("maxsize, maxage and maxbackups must not be negative")
	}
	return r, nil
}

// Files returns the outputs that are files.
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

// Log is a set of open outputs.
type Log struct {
	handler *handler
	out     outputs
	queues  []*queue
}

// reopener is an output that is a file.
type reopener interface {
	output
	reopen() error
	close() error
}

// Open opens the outputs.
func Open(c Config) (*Log, error) {
	l := &Log{}
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
		q := newQueue(s, newCore(c.Console, nil).lostLines)
		l.out.list, l.queues = append(l.out.list, q), append(l.queues, q)
	}
	l.handler = newHandler(c.Level, c.Console, &l.out, newSites())
	return l, nil
}

func open(out string, r *Rotation) (output, error) {
	switch out {
	case Stderr:
		return &stream{Writer: os.Stderr}, nil
	case Stdout:
		return &stream{Writer: os.Stdout}, nil
	case Journal:
		if !journal.Enabled() {
			return nil, errors.New("there is no journal to write to: leave systemd/journal out " +
				"of --log-outputs, or let the member reach the socket of the journal")
		}
		return toJournal{}, nil
	}
	// This reports an error at the start instead of at the first line.
	f := reopener(&file{path: out})
	if r != nil {
		f = &rotated{Logger: lumberjack.Logger{Filename: out, MaxSize: r.MaxSize, MaxAge: r.MaxAge,
			MaxBackups: r.MaxBackups,
			LocalTime:  r.LocalTime, Compress: r.Compress}}
	}
	return f, f.reopen()
}

// Handler returns the handler that writes records as lines.
func (l *Log) Handler() slog.Handler { return l.handler }

// Reopen opens the files again by their names, after another program has moved them. If a file
// cannot be opened, its lines continue to go to the old file.
func (l *Log) Reopen() error {
	var errs []error
	for _, q := range l.queues {
		errs = append(errs, q.reopen())
	}
	return errors.Join(errs...)
}

// Flush waits until all lines are written, for a second for each output at most.
func (l *Log) Flush() error {
	var errs []error
	for _, q := range l.queues {
		errs = append(errs, q.flush())
	}
	return errors.Join(errs...)
}

// Close writes the waiting lines as Flush does, and closes the files. Later lines are lost.
func (l *Log) Close() error {
	var errs []error
	for _, q := range l.queues {
		errs = append(errs, q.close())
	}
	return errors.Join(errs...)
}
