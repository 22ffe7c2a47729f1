// Package progress shows the progress of long work: a bar on a terminal, a line every ten seconds
// elsewhere.
package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"vigil/cmd/vigilctl/screen"
	"vigil/internal/amount"
)

// lineInterval is the time between two lines if the output is not a terminal.
const lineInterval = 10 * time.Second

// barDelay is the time before a bar appears: short work shows none.
const barDelay = time.Second

// meter has the parts that both kinds of progress share.
type meter struct {
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar // nil until it is drawn
	what     string                   // the text before the bar
	begun    time.Time
	printed  time.Time // when the last line was printed
}

func newMeter(w io.Writer, what string) meter {
	now := time.Now()
	_, _, terminal := screen.Size(w)
	return meter{w: screen.Unguarded(w), terminal: terminal, what: what, begun: now, printed: now}
}

// set shows that done of total is complete. The text is for a line, the options are for a bar.
func (m *meter) set(what, text string, done, total int64, options ...progressbar.Option) {
	if !m.terminal {
		if now := time.Now(); now.Sub(m.printed) >= lineInterval {
			m.printed = now
			fmt.Fprintf(m.w, "%s: %s\n", what, text)
		}
		return
	}
	if time.Since(m.begun) < barDelay {
		return
	}
	if m.bar == nil || what != m.what {
		m.End()
		m.what = what
		m.bar = progressbar.NewOptions64(total,
			append(options, progressbar.OptionSetWriter(m.w),
				progressbar.OptionSetDescription(what),
				progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionClearOnFinish())...)
	}
	_ = m.bar.Set64(min(done, total)) // an error of the bar does not matter
}

// End removes the bar.
func (m *meter) End() {
	if m.bar != nil {
		_ = m.bar.Clear()
		m.bar = nil
	}
}

// Bytes shows the progress of work on bytes, in one or several steps.
type Bytes struct{ meter }

// NewBytes starts a progress display. quiet hides it: a program that reads JSON from a terminal
// gets both output streams as one.
func NewBytes(w io.Writer, quiet bool) *Bytes {
	if quiet {
		w = io.Discard
	}
	return &Bytes{newMeter(w, "")}
}

// Set shows how many bytes of a step are complete.
func (b *Bytes) Set(step string, done, total int64) {
	b.set(step, amount.Bytes(done)+" of "+amount.Bytes(total), done, total,
		progressbar.OptionShowBytes(true))
}

// Items shows the progress of work on a number of items.
type Items struct {
	meter
	unit  string
	total int64
}

// NewItems starts a progress display.
func NewItems(w io.Writer, what, unit string, total int64) *Items {
	return &Items{newMeter(w, what), unit, total}
}

// Set shows how many items are complete. It must not be called concurrently.
func (i *Items) Set(done int64) {
	i.set(i.what, fmt.Sprintf("%d of %d %s", done, i.total, i.unit), done, i.total)
}
