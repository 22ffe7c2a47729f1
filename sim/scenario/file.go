package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"vigil/sim/scenario/setup"
)

// mostPlaces is the number of machines for members that have an address.
const mostPlaces = 100

// Case is a plan in a file. It stays the same when seeds give other plans.
type Case struct {
	// Cause is what the plan once found.
	Cause string
	// Mistake is the planted mistake that the plan must find, if any.
	Mistake string `json:",omitempty"`
	// Violation is the kind of violation that it found.
	Violation string `json:",omitempty"`
	Plan      Plan
}

// ReadCase reads a file.
func ReadCase(file string) (c Case, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return c, fmt.Errorf("%s: there is something after the plan", file)
	}
	if err := c.Plan.validate(); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// Write writes a file.
func (c Case) Write(file string) error {
	b, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o600)
}

// validate reports everything that a plan which no seed gave may have wrong.
func (p *Plan) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p.Members < 1 || p.Places < p.Members {
		bad("%d members at %d places: need one member and a place for each", p.Members, p.Places)
	}
	if p.Clients < 1 || p.Workers < 1 || p.Think <= 0 {
		bad("%d processes of %d clients that pause for up to %v: need at least one, and a pause",
			p.Clients, p.Workers, p.Think)
	}
	if p.Places > mostPlaces {
		bad("%d places: at most %d", p.Places, mostPlaces)
	}
	if p.Watchers < 0 || p.Faulty <= 0 {
		bad("%d watchers, faults for %v: need a time, and no less than 0 watchers",
			p.Watchers, p.Faulty)
	}
	if p.Heartbeats != 0 && p.Heartbeats < fewHeartbeats {
		bad("%d heartbeats in an election timeout: members need at least %d",
			p.Heartbeats, fewHeartbeats)
	}
	if p.QuotaBytes < 0 || p.ScrubPause < 0 || p.CorruptCheckInterval < 0 {
		bad("a quota of %d bytes, pauses of %v and %v: none may be negative", p.QuotaBytes,
			p.ScrubPause, p.CorruptCheckInterval)
	}
	if p.Wave < 0 || p.Lull < 0 || p.Lull > 0 && p.Wave == 0 {
		bad("waves of %v and lulls of %v: lulls need waves between them", p.Wave, p.Lull)
	}
	if p.SegmentBytes != 0 && p.SegmentBytes < 16<<10 {
		bad("segments of %d bytes: need at least 16 KiB", p.SegmentBytes)
	}
	if p.HistoryBytes != 0 && p.HistoryBytes < 16<<10 {
		bad("files of the history of %d bytes: need at least 16 KiB", p.HistoryBytes)
	}
	for _, w := range p.Work {
		if w != setup.Users && w != setup.Quota && !slices.Contains(setup.Works, w) {
			bad("work %q does not exist", w)
		}
	}
	for n, f := range p.Faults {
		if faults[f.Kind] == nil {
			bad("fault %d: the kind %q does not exist", n, f.Kind)
		}
		if f.A < theNewest || f.A >= p.Members || f.B < theNewest || f.B >= p.Members ||
			f.At < 0 || f.For < 0 {
			bad("fault %d: a target or time is out of range: %v", n, f)
		}
	}
	return errors.Join(errs...)
}
