package logline

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
)

// writer writes lines. After a partly written line, as on a full disk, it begins a new one.
type writer struct{ torn bool }

func (l *writer) writeLine(w io.Writer, line []byte) (n int, err error) {
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	if n, err = w.Write(line); n > 0 {
		l.torn = line[n-1] != '\n'
	}
	return n, err
}

// stream is an output that is always open.
type stream struct {
	writer
	io.Writer
}

func (s *stream) write(_ zapcore.Level, line []byte) { _, _ = s.writeLine(s.Writer, line) }

// file is a file to append to.
type file struct {
	writer
	path string
	f    *os.File
}

func (f *file) write(_ zapcore.Level, line []byte) { _, _ = f.writeLine(f.f, line) }

func (f *file) reopen() error {
	n, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if f.f != nil {
		f.f.Close()
	}
	f.f, f.torn = n, endsInPart(f.path)
	return nil
}

func (f *file) close() error { return f.f.Close() }

// endsInPart reports whether the last line of a file is incomplete after a crash or a full disk.
func endsInPart(path string) bool {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], st.Size()-1)
	return err == nil && last[0] != '\n'
}

// rotated is a file that rotates when it is large or old.
type rotated struct {
	writer
	lumberjack.Logger
}

func (r *rotated) write(_ zapcore.Level, line []byte) {
	// A file that cannot rotate, for instance without permission in its directory, keeps growing.
	if n, err := r.writeLine(&r.Logger, line); err != nil && n == 0 {
		f := file{writer: r.writer, path: r.Filename}
		if f.reopen() == nil {
			f.write(0, line)
			_ = f.close()
			r.torn = f.torn
		}
	}
}

// reopen closes the file; the next line opens it. If it cannot be opened, it stays open.
func (r *rotated) reopen() error {
	f := file{path: r.Filename}
	if err := f.reopen(); err != nil {
		return err
	}
	r.torn = f.torn
	return errors.Join(f.close(), r.Logger.Close())
}

func (r *rotated) close() error { return r.Logger.Close() }

// toJournal is systemd's journal. The severity is a field next to the line.
type toJournal struct{}

func (toJournal) write(level zapcore.Level, line []byte) {
	priority := journal.PriErr
	switch {
	case level < zapcore.InfoLevel:
		priority = journal.PriDebug
	case level < zapcore.WarnLevel:
		priority = journal.PriInfo
	case level < zapcore.ErrorLevel:
		priority = journal.PriWarning
	}
	_ = journal.Send(string(bytes.TrimSuffix(line, []byte{'\n'})), priority,
		map[string]string{"SYSLOG_IDENTIFIER": "vigil"})
}
