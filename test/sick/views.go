package sick

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"vigil/test/proc"
)

// A view is what an operator reads, in entries: a finding with its next step, a line of a table, a
// line of the log.
type view []string

// commandTimeout is that of vigilctl: a member that is frozen needs it.
const commandTimeout = "--command-timeout=4s"

// vigilctl runs a command that asks the members.
func (g *group) vigilctl(command string, args ...string) proc.Result {
	g.t.Helper()
	endpoints := g.asked
	if endpoints == nil {
		for _, m := range g.list {
			endpoints = append(endpoints, m.shown)
		}
	}
	list := strings.Join(endpoints, ",")
	if g.secure != nil {
		list = "https://" + strings.ReplaceAll(list, ",", ",https://")
	}
	all := append([]string{command, commandTimeout, "--endpoints=" + list}, g.users...)
	return proc.Run(g.t, 2*patience,
		proc.Spec{Name: proc.Path(g.t, proc.Vigilctl), Args: append(all, args...)})
}

// doctor returns the findings of vigilctl doctor, what it says to be good or not checked, and its
// last line.
func (g *group) doctor(args ...string) (v view) {
	g.t.Helper()
	r := g.vigilctl("doctor", args...)
	for line := range strings.SplitSeq(r.Stdout+r.Stderr, "\n") {
		switch rest, indented := strings.CutPrefix(line, "    "); {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, "    page: "):
		case indented && len(v) > 0:
			v[len(v)-1] += " " + rest
		case len(v) > 0 && !begins(line):
			v[len(v)-1] += " " + line
		default:
			v = append(v, line)
		}
	}
	for i := range v {
		v[i] = strings.Join(strings.Fields(v[i]), " ")
	}
	return v
}

// begins reports whether a line of doctor does not continue the one before.
func begins(line string) bool {
	for _, word := range []string{"CRITICAL ", "WARNING ", "NOTE ", "ok ", "not checked: ",
		"Error: ", "1 member", "2 member", "3 member", "4 member", "5 member",
		"members not known"} {
		if strings.HasPrefix(line, word) {
			return true
		}
	}
	return false
}

// top returns the lines of vigilctl top, without the columns of the table that are only numbers.
func (g *group) top() (v view) {
	g.t.Helper()
	r := g.vigilctl("top", "--once", "--interval=500ms")
	const first, last = "MEMBER", "LAG"
	until := 0
	for line := range strings.SplitSeq(r.Stdout+r.Stderr, "\n") {
		switch {
		case strings.HasPrefix(line, first):
			until = strings.Index(line, last) + len(last)
		case until > 0 && strings.Count(line, "  ") < 3: // after the table
			until = 0
		}
		if until > 0 && len(line) > until {
			line = line[:until]
		}
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			v = append(v, line)
		}
	}
	return v
}

// log returns the lines of a member's log since the cause.
func (m *member) log() (v view) {
	text := m.Log().String()
	for line := range strings.SplitSeq(text[min(m.logged, len(text)):], "\n") {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil {
			v = append(v, line)
			continue
		}
		entry := fmt.Sprintf("%v: %v", fields["level"], fields["msg"])
		delete(fields, "level")
		delete(fields, "msg")
		delete(fields, "ts")
		delete(fields, "caller")
		if len(fields) > 0 {
			b, _ := json.Marshal(fields)
			entry += " " + string(b)
		}
		v = append(v, entry)
	}
	return v
}

// stream is the console's stream of live figures.
type stream struct {
	mu   sync.Mutex
	last view
	at   time.Time // of the last line
	err  error
}

// follow opens the overview of a member's console and reads it until the test ends.
func (g *group) follow(m *member) *stream {
	s := &stream{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	g.t.Cleanup(func() { cancel(); <-done })
	scheme, transport := "http", &http.Transport{}
	if g.secure != nil {
		scheme, transport.TLSClientConfig = "https", g.tls()
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := s.read(ctx, &http.Client{Transport: transport},
				scheme+"://"+m.Addr()+"/console/api/live")
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return s
}

// read follows the stream once.
func (s *stream) read(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Vigil-Console", "1")
	r, err := c.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		v := overview(lines.Bytes())
		s.mu.Lock()
		s.last, s.at, s.err = v, time.Now(), nil
		s.mu.Unlock()
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the stream has ended (status %d)", r.StatusCode)
}

// silence is how long a stream without a new line is not remarkable.
const silence = 8 * time.Second

// view returns the newest overview, and first what is wrong with the stream.
func (s *stream) view() view {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := time.Since(s.at); s.err == nil && s.last != nil && since > silence {
		return append(view{fmt.Sprintf("(nothing new for %v)", since.Round(time.Second))},
			s.last...)
	}
	if s.err != nil {
		return append(view{"(the overview cannot be read: " + s.err.Error() + ")"}, s.last...)
	}
	return s.last
}

// overview returns what a line of the stream shows.
func overview(line []byte) (v view) {
	var o struct {
		Members []map[string]any
		Alarms  []struct{ Of, Name string }
		Unknown string `json:"alarms_unknown"`
		Pending []string
		End     *struct{ Error, Next string }
		Error   string // the answer is an error

		Diagnosis *struct {
			Findings []struct{ Severity, Member, What, Next string }
			Passed   []string
			Unseen   []struct{ Check, Member, Why string } `json:"not_checked"`
		}
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return view{"(not JSON) " + string(line)}
	}
	if o.End != nil {
		v = append(v, "ended: "+o.End.Error+" "+o.End.Next)
	}
	if o.Error != "" {
		v = append(v, "error: "+o.Error)
	}
	for _, m := range o.Members {
		entry := fmt.Sprintf("%v: %v", m["name"], m["role"])
		if why := m["error"]; why != nil {
			entry += fmt.Sprintf(": %v", why)
		}
		if st, ok := m["state"].(map[string]any); ok && st["errors"] != nil {
			entry += fmt.Sprintf(", errors: %v", st["errors"])
		}
		v = append(v, entry)
	}
	for _, a := range o.Alarms {
		v = append(v, fmt.Sprintf("alarm %s of %s", a.Name, a.Of))
	}
	if d := o.Diagnosis; d != nil {
		for _, f := range d.Findings {
			entry := strings.ToUpper(f.Severity) + " "
			if f.Member != "" {
				entry += f.Member + ": "
			}
			v = append(v, entry+f.What+" next: "+f.Next)
		}
		for _, name := range d.Passed {
			v = append(v, "ok "+name)
		}
		for _, u := range d.Unseen {
			v = append(v, "not checked: "+
				strings.Join(slices.DeleteFunc([]string{u.Member, u.Check},
					func(s string) bool { return s == "" }), ", ")+": "+u.Why)
		}
	}
	return v
}
