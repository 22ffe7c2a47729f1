// Package keyview has the commands that show keys now and in the past: tree, history and diff.
package keyview

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/client/times"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/show"
)

const historyHelp = `Print every revision of a key that has not been compacted, each with its change.

The first known state of a key is that at the compaction; older revisions cannot be
read. JSON and YAML are compared by their structure, other text line by line, and
other values are shown as the bytes at the first difference. --prefix prints all keys
with the prefix KEY, in the order of their changes. --times adds when each change was
made.

Only the last 50 changes are printed, and of each at most 40 lines; --full prints all.
JSON (-w json) always has all changes.`

// Limits of the output without --full.
const (
	maxChanges = 50
	maxLines   = 40
)

// History returns the command history.
func History(env *cli.Env) *cobra.Command {
	var from, to int64
	var since, until cli.Time
	var prefix, full, showTimes bool
	c := &cobra.Command{
		Use:     "history [options] <key>",
		Short:   "Print each kept revision of a key, with the difference to the previous one",
		Long:    historyHelp,
		Example: "  vigilctl history config/app\n  vigilctl history --prefix services/ --from 4200 -w json\n  vigilctl history config/app --since 1h --times",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return exit.Usage("history takes one key, not %d arguments", len(args))
			case since.Given() && from != 0, until.Given() && to != 0:
				return exit.Usage("--since and --from, or --until and --to, cannot both be given")
			case from < 0 || to < 0 || to > 0 && from > to:
				return exit.Usage("--from %d and --to %d are not a range of revisions", from, to)
			}
			p, err := env.Printer(show.Simple, show.JSON)
			if err != nil {
				return err
			}
			h := keyHistory{key: args[0], from: from, to: to, last: map[string]client.KeyValue{},
				print: p, since: since, until: until, times: showTimes,
				bounded: !full && p.Format == show.Simple, notes: env.Stderr}
			if prefix {
				h.opts = append(h.opts, client.WithPrefix())
			}
			return env.RunLong(c, h.printHistory)
		},
	}
	c.Flags().Int64Var(&from, "from", 0, "the first revision; 0 is the oldest available")
	c.Flags().Int64Var(&to, "to", 0, "the last revision; 0 is the current one")
	c.Flags().Var(&since, "since", "the changes after this `TIME`: "+cli.TimeFormats)
	c.Flags().Var(&until, "until", "the changes up to this `TIME`")
	c.Flags().BoolVar(&showTimes, "times", false,
		"print when each revision was made, as far as that is known")
	c.Flags().BoolVar(&full, "full", false, "all changes, with all lines")
	c.Flags().BoolVar(&prefix, "prefix", false, "all keys with the prefix KEY")
	return c
}

// keyHistory prints the changes of keys.
type keyHistory struct {
	key      string
	opts     []client.RangeOption
	from, to int64
	// since and until replace from and to if they are given.
	since, until cli.Time
	// times makes each line show the time of its revision.
	times bool
	last  map[string]client.KeyValue // the previous state of each key
	print *show.Printer
	// bounded limits the output: recent has the changes that may be printed at the end, and omitted
	// counts the others.
	bounded bool
	recent  []change
	omitted int
	notes   io.Writer
}

// change is a change to a key, the key's state before, and the time of the change.
type change struct {
	span  times.Span
	event client.Event
	old   client.KeyValue
	had   bool
}

func (h *keyHistory) printHistory(ctx context.Context, c *client.Client) error {
	if err := h.resolveTimes(ctx, c); err != nil {
		return err
	}
	err := h.readAll(ctx, c)
	if err == nil && h.times {
		err = h.addTimes(ctx, c, h.recent)
	}
	if err != nil {
		return err
	}
	for _, x := range h.recent {
		if err := h.printText(x); err != nil {
			return err
		}
	}
	if h.omitted > 0 {
		fmt.Fprintf(h.notes,
			"%d older changes are left out: --full prints them, --from and --to choose\n",
			h.omitted)
	}
	return nil
}

// resolveTimes converts times to revisions.
func (h *keyHistory) resolveTimes(ctx context.Context, c *client.Client) error {
	if h.since.Given() {
		rev, err := h.since.Revision(ctx, c)
		if err != nil {
			return err
		}
		h.from = rev + 1
	}
	if h.until.Given() {
		var err error
		if h.to, err = h.until.Revision(ctx, c); err != nil {
			return err
		}
		if h.from > h.to {
			return exit.Usage("there is no revision between --since %s and --until %s",
				h.since.String(), h.until.String())
		}
	}
	return nil
}

// addTimes looks up when the changes were made.
func (h *keyHistory) addTimes(ctx context.Context, c *client.Client, list []change) error {
	revisions := make([]int64, len(list))
	for i := range list {
		revisions[i] = list[i].event.KV.ModRevision
	}
	spans, err := cli.TimesOf(ctx, c, revisions)
	for i := range spans {
		list[i].span = spans[i]
	}
	return err
}

func (h *keyHistory) readAll(ctx context.Context, c *client.Client) error {
	now, err := c.Get(ctx, h.key, client.WithCountOnly())
	if err != nil {
		return err
	}
	if h.to == 0 {
		h.to = now.Header.Revision
	}
	if h.to > now.Header.Revision {
		return fmt.Errorf("--to %d: the store is at revision %d", h.to, now.Header.Revision)
	}
	start := max(h.from, 1)
	err = h.printChanges(ctx, c, start)
	var gone *client.CompactedError
	if !errors.As(err, &gone) {
		return err
	}
	if gone.Revision >= h.to {
		return fmt.Errorf("--to %d: revisions up to %d have been compacted", h.to, gone.Revision)
	}
	if err := h.printCompacted(ctx, c, gone.Revision); err != nil {
		return err
	}
	return h.printChanges(ctx, c, gone.Revision+1)
}

// printCompacted prints the keys at the compact revision.
func (h *keyHistory) printCompacted(ctx context.Context, c *client.Client, rev int64) error {
	opts := []client.GetOption{client.WithRevision(rev)}
	for _, o := range h.opts {
		opts = append(opts, o)
	}
	for kv, err := range c.List(ctx, h.key, opts...).All() {
		if err != nil {
			return err
		}
		if err := h.printChanged(ctx, c, client.Event{KV: kv}); err != nil {
			return err
		}
	}
	return nil
}

// printChanges prints all changes since a revision.
func (h *keyHistory) printChanges(ctx context.Context, c *client.Client, rev int64) error {
	opts := []client.WatchOption{client.FromRevision(rev)}
	for _, o := range h.opts {
		opts = append(opts, o)
	}
	w := c.Watch(ctx, h.key, opts...)
	defer w.Close()
	// Progress notifications show that the watch has reached the last revision: the next event may
	// be far away.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			w.RequestProgress()
			select {
			case <-time.After(pause):
			case <-ended:
				return
			}
		}
	}()
	for b, err := range w.Batches() {
		if err != nil {
			return err
		}
		events := b.Events
		if i := slices.IndexFunc(events,
			func(ev client.Event) bool { return ev.KV.ModRevision > h.to }); i >= 0 {
			events = events[:i]
		}
		if err := h.printChanged(ctx, c, events...); err != nil {
			return err
		}
		if len(events) < len(b.Events) {
			return nil
		}
		if b.Revision >= h.to {
			return nil
		}
	}
	return context.Cause(ctx)
}

// printChanged prints changes, with their times if requested. If the output is bounded, the times
// are added at the end.
func (h *keyHistory) printChanged(ctx context.Context, c *client.Client,
	events ...client.Event) error {
	list := make([]change, len(events))
	for i, ev := range events {
		list[i].event = ev
	}
	if h.times && !h.bounded && len(list) > 0 {
		if err := h.addTimes(ctx, c, list); err != nil {
			return err
		}
	}
	for _, x := range list {
		if err := h.printChange(x.event, x.span); err != nil {
			return err
		}
	}
	return nil
}

// printChange prints a change, or keeps it for the end if the output is bounded.
func (h *keyHistory) printChange(ev client.Event, span times.Span) error {
	kv := ev.KV.Clone()
	old, had := h.last[kv.Key]
	if ev.Type == client.Delete {
		delete(h.last, kv.Key)
	} else {
		h.last[kv.Key] = kv
	}
	if h.print.Format == show.JSON {
		var value *keytext.JSON // nil after a delete
		if ev.Type != client.Delete {
			v := keytext.JSON(kv.Value)
			value = &v
		}
		b, err := json.Marshal(struct {
			Type string       `json:"type"`
			Key  keytext.JSON `json:"key"`
			keytext.Metadata
			Value *keytext.JSON `json:"value,omitempty"`
			After time.Time     `json:"made_after,omitzero"`
			At    time.Time     `json:"made_at,omitzero"`
		}{ev.Type.String(), keytext.JSON(kv.Key), keytext.MetadataOf(kv), value,
			span.After, span.At})
		if err != nil {
			return err
		}
		return h.print.Line("%s", b)
	}
	x := change{span, client.Event{Type: ev.Type, KV: kv}, old, had}
	if !h.bounded {
		return h.printText(x)
	}
	if h.recent = append(h.recent, x); len(h.recent) > maxChanges {
		h.recent = slices.Delete(h.recent, 0, 1)
		h.omitted++
	}
	return nil
}

// printText prints a change as text.
func (h *keyHistory) printText(x change) error {
	ev, kv, old, had := x.event, x.event.KV, x.old, x.had
	name := keytext.Quote(kv.Key)
	made := ""
	if h.times {
		made = "  " + cli.FormatSpan(x.span)
	}
	switch {
	case ev.Type == client.Delete:
		return h.print.Line("revision %d  deleted  %s%s", kv.ModRevision, name, made)
	case kv.Lease != 0:
		name += fmt.Sprintf("  lease %016x", int64(kv.Lease))
	}
	if err := h.print.Line("revision %d  version %d  %s%s", kv.ModRevision, kv.Version, name,
		made); err != nil {
		return err
	}
	if had && old.Version == kv.Version-1 && old.CreateRevision == kv.CreateRevision {
		return h.print.Line("%s", h.cutText(difference(old.Value, kv.Value)))
	}
	return h.print.Line("%s", h.cutText(indent("+", keytext.Printable(kv.Value))))
}

// cutText cuts off the end of a long text.
func (h *keyHistory) cutText(text string) string {
	lines := strings.Split(text, "\n")
	if !h.bounded || len(lines) <= maxLines {
		return text
	}
	return fmt.Sprintf("%s\n  … %d more lines: --full prints them",
		strings.Join(lines[:maxLines], "\n"), len(lines)-maxLines)
}

// difference describes how a value has changed.
func difference(old, new []byte) string {
	switch {
	case bytes.Equal(old, new):
		return "  (the same value)"
	case !keytext.IsText(old) || !keytext.IsText(new):
		at := 0
		for at < min(len(old), len(new)) && old[at] == new[at] {
			at++
		}
		return fmt.Sprintf("  %d bytes, were %d; from byte %d on:\n- %s\n+ %s", len(new), len(old),
			at, keytext.Excerpt(old[at:]), keytext.Excerpt(new[at:]))
	}
	if a, b, ok := structures(old, new); ok {
		if lines := compareStructures("", a, b); len(lines) > 0 {
			return strings.Join(lines, "\n")
		}
		return "  (the same content, written differently)"
	}
	switch {
	case !bytes.Contains(old, []byte("\n")) && !bytes.Contains(new, []byte("\n")):
		return "- " + string(old) + "\n+ " + string(new)
	}
	d := string(diff.Diff("old", old, "new", new))
	// Skip the lines with file names: there are no files.
	if _, rest, ok := strings.Cut(d, "\n@@"); ok {
		d = "@@" + rest
	}
	return strings.TrimSuffix(d, "\n")
}

func indent(mark, text string) string {
	return mark + " " + strings.ReplaceAll(text, "\n", "\n"+mark+" ")
}
