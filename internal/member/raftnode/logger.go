package raftnode

import (
	"context"
	"fmt"
	"log/slog"
)

// logger passes the lines of the library to a slog.Logger. The library logs each step of an
// election at info. Here that is debug, because the node logs what an operator needs.
type logger struct{ l *slog.Logger }

func (l logger) log(level slog.Level, v []any) {
	if l.l.Enabled(context.Background(), level) {
		l.l.Log(context.Background(), level, "raft: "+fmt.Sprint(v...))
	}
}

func (l logger) logf(level slog.Level, format string, v []any) {
	if l.l.Enabled(context.Background(), level) {
		l.l.Log(context.Background(), level, "raft: "+fmt.Sprintf(format, v...))
	}
}

func (l logger) Debug(v ...any)                   { l.log(slog.LevelDebug, v) }
func (l logger) Debugf(format string, v ...any)   { l.logf(slog.LevelDebug, format, v) }
func (l logger) Info(v ...any)                    { l.log(slog.LevelDebug, v) }
func (l logger) Infof(format string, v ...any)    { l.logf(slog.LevelDebug, format, v) }
func (l logger) Warning(v ...any)                 { l.log(slog.LevelWarn, v) }
func (l logger) Warningf(format string, v ...any) { l.logf(slog.LevelWarn, format, v) }
func (l logger) Error(v ...any)                   { l.log(slog.LevelError, v) }
func (l logger) Errorf(format string, v ...any)   { l.logf(slog.LevelError, format, v) }

// Fatal and Panic panic, which becomes the node's failure.
func (l logger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l logger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l logger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l logger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
