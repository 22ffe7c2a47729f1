package logline

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// timeFormat is ISO 8601 with microseconds, like etcd's.
const timeFormat = "2006-01-02T15:04:05.999999Z0700"

// output accepts whole lines.
type output interface {
	write(level zapcore.Level, line []byte)
}

// outputs get all lines in the same order.
type outputs struct {
	sync.Mutex
	list []output
}

// core is a zapcore.Core that encodes a line once and writes it to all outputs.
type core struct {
	zapcore.Encoder
	console bool
	out     *outputs
}

func newCore(console bool, out *outputs) core {
	c := zapcore.EncoderConfig{EncodeTime: zapcore.TimeEncoderOfLayout(timeFormat),
		EncodeDuration: zapcore.StringDurationEncoder}
	if !console {
		c.LevelKey, c.TimeKey, c.CallerKey, c.MessageKey = "level", "ts", "caller", "msg"
		c.EncodeLevel, c.EncodeCaller = zapcore.LowercaseLevelEncoder, zapcore.ShortCallerEncoder
	}
	return core{zapcore.NewJSONEncoder(c), console, out}
}

// Enabled implements zapcore.Core.
func (c core) Enabled(zapcore.Level) bool { return true }

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	c.Encoder = c.Clone()
	for _, f := range fields {
		f.AddTo(c.Encoder)
	}
	return c
}

// Check implements zapcore.Core.
func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, c)
}

// Write implements zapcore.Core.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	line, err := c.EncodeEntry(e, fields)
	if err != nil {
		return err
	}
	if c.console {
		line = consoleLine(e, line)
	} else {
		line = safeLine(line)
	}
	c.out.Lock()
	for _, o := range c.out.list {
		o.write(e.Level, line.Bytes())
	}
	c.out.Unlock()
	line.Free()
	return nil
}

// lostLines returns the line that reports lines lost by an output.
func (c core) lostLines(n uint64) []byte {
	e := zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Now(), Message: "lines were left out"}
	line, err := c.EncodeEntry(e,
		[]zapcore.Field{zap.String("of", "this output, which did not take them in time"),
			zap.Uint64("lines-left-out", n)})
	if err != nil {
		return nil
	}
	if c.console {
		line = consoleLine(e, line)
	}
	return line.Bytes()
}

// Sync implements zapcore.Core.
func (c core) Sync() error { return nil }

var buffers = buffer.NewPool()

// printable escapes everything in s on which a terminal acts: control and format characters and
// invalid UTF-8. JSON keeps its meaning.
func printable(s string) string {
	if utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteString(s[:n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		default:
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		}
		s = s[n:]
	}
	return b.String()
}

// safeLine returns the line of JSON in which a terminal acts on nothing.
func safeLine(line *buffer.Buffer) *buffer.Buffer {
	content := bytes.TrimSuffix(line.Bytes(), []byte{'\n'})
	if !bytes.ContainsFunc(content, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return line
	}
	safe := buffers.Get()
	safe.AppendString(printable(string(content)))
	safe.AppendByte('\n')
	line.Free()
	return safe
}

// consoleLine returns the line for people: the parts and the fields, separated by tabs.
func consoleLine(e zapcore.Entry, fields *buffer.Buffer) *buffer.Buffer {
	line := buffers.Get()
	if !e.Time.IsZero() {
		line.AppendTime(e.Time, timeFormat)
		line.AppendByte('\t')
	}
	line.AppendString(e.Level.String() + "\t")
	if e.Caller.Defined {
		line.AppendString(e.Caller.TrimmedPath() + "\t")
	}
	line.AppendString(printable(e.Message))
	if s := strings.TrimSuffix(fields.String(), "\n"); s != "{}" {
		line.AppendString("\t" + printable(s))
	}
	line.AppendByte('\n')
	fields.Free()
	return line
}
