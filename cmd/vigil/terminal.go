package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"vigil/internal/spelling"
	"vigil/server"
)

// forPeople reports whether a person probably reads the log: standard error is a terminal, and no
// flag about the log is given.
func (o *options) forPeople(stderr *os.File) bool {
	given := false
	o.each(func(opt *option) {
		switch opt.name {
		case "log-format", "log-level", "log-outputs", "logger":
			given = given || opt.origin.kind != ""
		}
	})
	return !given && term.IsTerminal(int(stderr.Fd()))
}

// Styles of a terminal with colors.
const (
	bold   = "1"
	good   = "32"
	warned = "33"
	bad    = "31;1"
)

// terminalLog is a log for people. It shows warnings, errors and the stop in words, and the
// messages that programs wait for. Everything else is in the log for programs. Containers and test
// harnesses have terminals that no person reads.
type terminalLog struct {
	shared *terminalState
	attrs  []slog.Attr
}

type terminalState struct {
	w      io.Writer
	colors bool
	mu     struct {
		sync.Mutex
		last map[string]time.Time // when a message was last printed
	}
}

// repeatPause is how long the same message is not repeated.
const repeatPause = 5 * time.Second

func newTerminalLog(w io.Writer) *terminalLog {
	s := &terminalState{w: w, colors: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	s.mu.last = map[string]time.Time{}
	return &terminalLog{shared: s}
}

func (s *terminalState) in(style, text string) string {
	if !s.colors {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// stops are the info messages that people see as answers to Ctrl-C.
var stops = map[string]bool{"stopping": true, "stopped": true,
	"stopped while the member was starting": true}

// awaited are the prefixes of the messages that programs wait for in a log
// (docs/operations/logging.md). printReady prints one more.
var awaited = []string{"serving client traffic", "raft leader changed",
	"finished scheduled compaction", "finished compaction hash check",
	"starting auto ", "completed auto ", "failed auto ", "rejected connection on "}

func isAwaited(message string) bool {
	return slices.ContainsFunc(awaited,
		func(beginning string) bool { return strings.HasPrefix(message, beginning) })
}

// Enabled implements slog.Handler.
func (t *terminalLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (t *terminalLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &terminalLog{t.shared, append(t.attrs[:len(t.attrs):len(t.attrs)], attrs...)}
}

// WithGroup implements slog.Handler. It ignores the names of groups.
func (t *terminalLog) WithGroup(string) slog.Handler { return t }

// Handle implements slog.Handler.
func (t *terminalLog) Handle(_ context.Context, r slog.Record) error {
	s := t.shared
	if r.Level < slog.LevelWarn && !stops[r.Message] && !isAwaited(r.Message) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.mu.last[r.Message]; ok && !isAwaited(r.Message) &&
		r.Time.Sub(last) < repeatPause {
		return nil
	}
	if len(s.mu.last) > 1000 {
		clear(s.mu.last)
	}
	s.mu.last[r.Message] = r.Time
	var details []string
	add := func(a slog.Attr) bool {
		if a.Key != "" && a.Value.Kind() != slog.KindGroup {
			details = append(details, a.Key+" "+printable(a.Value.String()))
		}
		return true
	}
	for _, a := range t.attrs {
		add(a)
	}
	r.Attrs(add)
	text := printable(r.Message)
	if len(details) > 0 {
		text += " (" + strings.Join(details, ", ") + ")"
	}
	switch {
	case r.Level >= slog.LevelError:
		text = s.in(bad, "error: ") + text
	case r.Level >= slog.LevelWarn:
		text = s.in(warned, "warning: ") + text
	}
	_, err := fmt.Fprintln(s.w, text)
	return err
}

// printable returns a text on one line that is safe on a terminal. It shortens a long text.
func printable(s string) string {
	const most = 300
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	if !utf8.ValidString(s) ||
		strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// printStart prints which member this is.
func (o *options) printStart(t *terminalLog) {
	c, s := &o.config, t.shared
	dir := c.DataDir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	fmt.Fprintf(s.w, "%s\n",
		s.in(bold, fmt.Sprintf("Vigil %s, with the API of etcd %s", server.Version,
			server.APIVersion)))
	for _, line := range [][2]string{{"name", c.Name}, {"data", dir},
		{"clients", strings.Join(c.ListenClientURLs, " ")},
		{"peers", strings.Join(c.ListenPeerURLs, " ")}} {
		fmt.Fprintf(s.w, "  %-8s %s\n", line[0], printable(line[1]))
	}
	if n := strings.Count(c.InitialCluster, "=") - 1; n > 0 {
		fmt.Fprintf(s.w, "  %-8s %d others; it serves when a majority runs\n", "members", n)
	}
}

// printReady prints what to do next when the member serves.
func (o *options) printReady(ctx context.Context, m *server.Member, t *terminalLog) {
	select {
	case <-m.Serving():
	case <-ctx.Done():
		return
	}
	s := t.shared
	fmt.Fprintf(s.w, "%s; Ctrl-C stops it\n", s.in(good, "ready to serve client requests"))
	if u := m.ConsoleURL(); u != "" {
		fmt.Fprintf(s.w, "  console  %s\n", printable(u))
	}
	fmt.Fprintf(s.w, "  try      %s\n", printable(tryCommand(&o.config)))
}

// tryCommand suggests a first command for this member, on its own machine.
func tryCommand(c *server.Config) string {
	words := []string{"vigilctl"}
	if urls := c.AdvertiseClientURLs; len(urls) > 0 && urls[0] != server.DefaultClientURL {
		endpoint := urls[0]
		if u, err := url.Parse(endpoint); err == nil && net.ParseIP(u.Hostname()).IsUnspecified() {
			u.Host = net.JoinHostPort("127.0.0.1", u.Port())
			endpoint = u.String()
		}
		words = append(words, "--endpoints", endpoint)
		if u, err := url.Parse(endpoint); err == nil &&
			(u.Scheme == "https" || u.Scheme == "unixs") {
			words = append(words, certificateFlags(c)...)
		}
	}
	return spelling.QuoteWords(append(words, "put", "greeting", "hello")...)
}

// certificateFlags are the flags with which a client verifies the member and the member verifies
// the client. The path of the authority is absolute: the client may run in another directory.
func certificateFlags(c *server.Config) (words []string) {
	authority := c.ClientTLS.TrustedCAFile
	if c.ClientTLS.CertFile == "" && c.ClientTLS.Auto {
		authority = filepath.Join(c.DataDir, "fixtures", "client", "cert.pem")
	}
	if authority != "" {
		if abs, err := filepath.Abs(authority); err == nil {
			authority = abs
		}
		words = append(words, "--cacert", authority)
	}
	if c.ClientTLS.ClientCertAuth || c.ClientTLS.TrustedCAFile != "" {
		words = append(words, "--cert", "CLIENT.pem", "--key", "CLIENT-key.pem")
	}
	return words
}
