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
	"vigil/server"
)

// logging is the configuration of the log.
type logging struct {
	level, format string
	outputs       []string
	rotate        bool
	rotation      string // JSON, see logline.Rotation
}

const defaultRotation = `{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}`

// levels are etcd's log levels, by severity.
var levels = []string{"debug", "info", "warn", "error", "dpanic", "panic", "fatal"}

var slogLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError,
	"dpanic": slog.LevelError + 4, "panic": slog.LevelError + 8, "fatal": slog.LevelError + 12}

func loggingFlags(o *options) []*option {
	l := &o.log
	return []*option{
		{name: "logger", value: "KIND", noEffect: "zap is the only logger",
			get: func() string { return "zap" },
			set: func(s string) error {
				if s != "zap" {
					return errors.New("want zap")
				}
				return nil
			}},
		nonEmpty(list(&l.outputs, "log-outputs", "OUT,...",
			"stderr (default), stdout, systemd/journal, or paths of files to append to, which SIGHUP reopens")),
		logLevel(&l.level),
		orPreset("json", oneOf(&l.format, "log-format",
			"json, or console in columns; without it and the other flags of the log, a terminal gets a few lines for people", "json", "console")),
		boolean(&l.rotate, "enable-log-rotation",
			"replace the log file by a new one when it is large or old"),
		orPreset(defaultRotation,
			str(&l.rotation, "log-rotation-config-json", "JSON",
				"limits of a log file: maxsize in megabytes, maxage in days, maxbackups in files (0 for no limit); localtime, compress")),
		durationOrDefault(&o.config.WarnUnaryDuration, "warning-unary-request-duration",
			"duration of a unary call after which the call is logged"),
	}
}

// logLevel accepts a level in any letter case, and warning for warn, as etcd does.
func logLevel(p *string) *option {
	o := orPreset("info",
		oneOf(p, "log-level",
			"least severity that is logged: debug, info, warn, error, panic or fatal", levels...))
	set := o.set
	o.set = func(s string) error {
		if s = strings.ToLower(s); s == "warning" {
			s = "warn"
		}
		return set(s)
	}
	return o
}

// config converts the flags.
func (l *logging) config() (logline.Config, error) {
	c := logline.Config{Level: slogLevels[l.level], Console: l.format == "console",
		Outputs: l.outputs}
	var err error
	if l.rotate {
		var r logline.Rotation
		if r, err = logline.ParseRotation(l.rotation); err != nil {
			err = fmt.Errorf("--log-rotation-config-json: %w", err)
		}
		c.Rotation = &r
		if n := len(c.Files()); n != 1 {
			err = errors.Join(err,
				fmt.Errorf("--enable-log-rotation needs exactly one file among --log-outputs, which has %d", n))
		}
	}
	return c, err
}

// validate reports all mistakes at once.
func (l *logging) validate() error {
	_, err := l.config()
	return err
}

// openLog opens the log of the process, and redirects the log lines of libraries to it. people, if
// not nil, gets all lines.
func openLog(l *logging, people *terminalLog) (*logline.Log, *slog.Logger, error) {
	c, err := l.config()
	if err != nil {
		return nil, nil, err
	}
	out, err := logline.Open(c)
	if err != nil {
		return nil, nil, fmt.Errorf("--log-outputs: %w", server.WithNextStep(err))
	}
	log := slog.New(out.Handler())
	if people != nil {
		log = slog.New(people)
	}
	slog.SetDefault(log)
	// The other lines of the transport are about connections that clients broke; this program logs
	// calls itself.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, libraryLines{log}))
	return out, log, nil
}

// libraryLines receives the log lines of libraries, each DATE TIME ERROR: TEXT. The text becomes an
// attribute: lines are counted by their messages, and a client may have chosen the text.
type libraryLines struct{ log *slog.Logger }

// Write implements io.Writer.
func (l libraryLines) Write(b []byte) (int, error) {
	_, text, _ := strings.Cut(string(b), ": ")
	l.log.Warn("the transport or the gateway reports an error", "error", strings.TrimSpace(text))
	return len(b), nil
}

// reopenOnHangup reopens the log files at each SIGHUP: programs that rotate logs send it.
func reopenOnHangup(out *logline.Log, log *slog.Logger) {
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
