package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc/grpclog"

	"vigil/internal/logline"
)

// logging says what is logged and where to.
type logging struct {
	level, format string
	outputs       []string
	rotate        bool
	rotation      string // JSON, see logline.Rotation
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
		needed(list(&l.outputs, "log-outputs", "OUT,...", "stderr (default), stdout, systemd/journal, or paths of files to append to, which SIGHUP opens anew")),
		oneOf(&l.level, "log-level", "least severity that is logged: debug, info, warn, error, panic or fatal", levels...),
		oneOf(&l.format, "log-format", "json, or console for people", "json", "console"),
		boolean(&l.rotate, "enable-log-rotation", "replace the log file by a new one from time to time"),
		str(&l.rotation, "log-rotation-config-json", "JSON", "when: maxsize in megabytes, maxage in days, maxbackups in files (0 for no limit), localtime, compress"),
		orDefault(&o.config.WarnUnaryDuration, "warning-unary-request-duration", "how long a unary call may take before that is logged"),
	}
}

// config is what the flags come to.
func (l *logging) config() (logline.Config, error) {
	c := logline.Config{Level: slogLevels[l.level], Console: l.format == "console", Outputs: l.outputs}
	r, err := logline.ParseRotation(l.rotation)
	if err != nil {
		err = fmt.Errorf("--log-rotation-config-json: %w", err)
	}
	if l.rotate {
		c.Rotation = &r
		if n := len(c.Files()); n != 1 {
			err = errors.Join(err, fmt.Errorf("--enable-log-rotation needs exactly one file among --log-outputs, which has %d", n))
		}
	}
	return c, err
}

// validate reports everything that is wrong at once.
func (l *logging) validate() error {
	_, err := l.config()
	return err
}

// openLog opens the process's log, and takes in what libraries log for themselves.
func openLog(l *logging) (*logline.Log, *slog.Logger, error) {
	c, err := l.config()
	if err != nil {
		return nil, nil, err
	}
	out, err := logline.Open(c)
	if err != nil {
		return nil, nil, fmt.Errorf("--log-outputs: %w", err)
	}
	log := slog.New(out.Handler())
	slog.SetDefault(log)
	// The transport's own lines are about connections that clients have broken; its calls have lines of
	// their own.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, libraryLines{log}))
	return out, log, nil
}

// libraryLines takes in the lines of libraries, each DATE TIME ERROR: TEXT. The text, which a client may have chosen,
// and the time are in an attribute: lines are counted by their messages.
type libraryLines struct{ log *slog.Logger }

// Write implements io.Writer.
func (l libraryLines) Write(b []byte) (int, error) {
	_, text, _ := strings.Cut(string(b), ": ")
	l.log.Warn("the transport or the gateway reports an error", "error", strings.TrimSpace(text))
	return len(b), nil
}

// reopenLog opens the files of the log anew at each SIGHUP, which is how programs that rotate logs ask for
// it.
func reopenLog(out *logline.Log, log *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			if err := out.Reopen(); err != nil {
				log.Error("cannot reopen the log", "error", err)
				continue
			}
			log.Info("reopened the log")
		}
	}()
}
