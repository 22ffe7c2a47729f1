package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// workInterval is how often a line reports progress where there is no terminal.
const workInterval = 10 * time.Second

// barDelay is how long work lasts before a bar is drawn: short work leaves a terminal alone.
const barDelay = time.Second

// work tells how far something is that may take long: a bar on a terminal, a line now and then elsewhere.
type work struct {
	w    io.Writer
	bar  *progressbar.ProgressBar // nil where there is no terminal
	what string
	// begun is when the work began, said when its progress was printed last.
	begun, said time.Time
}

// newWork returns the progress of work whose result has a format: for JSON nothing is shown, since programs read both
// streams of a terminal as one.
func newWork(w io.Writer, f format) *work {
	if f == formatJSON {
		w = io.Discard
	}
	now := time.Now()
	return &work{w: w, begun: now, said: now}
}

// show tells how many bytes of how many are done.
func (p *work) show(what string, done, total int64) {
	if !isTerminal(p.w) {
		if now := time.Now(); now.Sub(p.said) >= workInterval {
			p.said = now
			fmt.Fprintf(p.w, "%s: %s of %s\n", what, size(done), size(total))
		}
		return
	}
	if time.Since(p.begun) < barDelay {
		return
	}
	if p.bar == nil || what != p.what {
		p.end()
		p.what = what
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	_ = p.bar.Set64(min(done, total)) // what cannot be shown is not shown
}

// end takes the bar away.
func (p *work) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}

// count tells how many of something are done.
type count struct {
	work
	unit  string
	total int64
}

func newCount(w io.Writer, what, unit string, total int64) *count {
	c := &count{work: *newWork(w, formatTable), unit: unit, total: total}
	c.what = what
	return c
}

// set tells how many are done. The caller sees to it that it is called by one goroutine at a time.
func (p *count) set(done int64) {
	if !isTerminal(p.w) {
		if now := time.Now(); now.Sub(p.said) >= workInterval {
			p.said = now
			fmt.Fprintf(p.w, "%s: %d of %d %s\n", p.what, done, p.total, p.unit)
		}
		return
	}
	if time.Since(p.begun) < barDelay {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(p.total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(p.what),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	_ = p.bar.Set64(min(done, p.total)) // what cannot be shown is not shown
}
