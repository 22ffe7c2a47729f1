package archivecmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
)

// Limits of one transaction: etcd's defaults are 128 operations and 1.5 MiB. If a member has lower
// limits, transactions become smaller.
const (
	batchKeys  = 100
	batchBytes = 512 << 10
)

// done counts the changes that were made.
type done struct {
	Created   int64 `json:"created"`
	Changed   int64 `json:"changed"`
	Deleted   int64 `json:"deleted"`
	Conflicts int64 `json:"conflicts"`
	Skipped   int64 `json:"skippedLeased"`
}

func (d *done) count(op operation) {
	switch op {
	case opCreate:
		d.Created++
	case opChange:
		d.Changed++
	case opDelete:
		d.Deleted++
	}
}

func (d *done) all() int64 { return d.Created + d.Changed + d.Deleted + d.Conflicts + d.Skipped }

// write is a change together with the value to put.
type write struct {
	change
	value []byte
}

func (w *write) op() client.Op {
	if w.change.op == opDelete {
		return client.OpDelete(w.key)
	}
	return client.OpPut(w.key, w.value, client.WithLease(w.lease))
}

// applyJournal makes the changes in the journal.
func (m *merge) applyJournal(ctx context.Context, j *journal) error {
	p := progress.NewItems(m.env.Stderr, "restoring", "keys", m.plan.changes())
	err := m.applyAll(ctx, j, p)
	p.End()
	d := &m.done
	if err != nil {
		fmt.Fprintf(m.env.Stderr,
			"not all is restored: %d created, %d changed, %d deleted of %s. The same command does the rest\n",
			d.Created, d.Changed, d.Deleted, amount.Count(int(m.plan.changes()), "change"))
		return err
	}
	if m.out.Format == show.JSON {
		err = printLine(m.env.Stdout, struct {
			Result *done `json:"result"`
		}{d})
	} else {
		text := fmt.Sprintf("restored: %d created, %d changed, %d deleted, %s", d.Created,
			d.Changed, d.Deleted, amount.Count(int(d.Conflicts), "conflict"))
		if d.Skipped > 0 {
			text += fmt.Sprintf(", %d left out whose lease has since ended", d.Skipped)
		}
		_, err = fmt.Fprintln(m.env.Stdout, text)
	}
	if err == nil && d.Conflicts > 0 {
		err = exit.With(exit.Conflict,
			fmt.Errorf("%s changed after the plan was made and left: see CONFLICT above, and run the command again for a new plan",
				amount.Count(int(d.Conflicts), "key")))
	}
	return err
}

func (m *merge) applyAll(ctx context.Context, j *journal, p *progress.Items) error {
	var batch []*write
	size := 0
	flush := func() error {
		err := m.commitChanges(ctx, batch)
		batch, size = nil, 0
		p.Set(m.done.all())
		return err
	}
	if err := j.rewind(); err != nil {
		return err
	}
	for {
		c, err := j.nextChange()
		if errors.Is(err, io.EOF) {
			return flush()
		}
		if err != nil {
			return err
		}
		w := &write{change: *c}
		if c.op != opDelete {
			k, err := m.past.Key(c.key)
			if err != nil {
				return err
			}
			w.value = k.Value
		}
		n := len(w.key) + len(w.value)
		if len(batch) > 0 && (len(batch) == batchKeys || size+n > batchBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, size = append(batch, w), size+n
	}
}

// commitChanges makes changes in one transaction, except the conflicting ones.
func (m *merge) commitChanges(ctx context.Context, batch []*write) error {
	var unknown error // the error of an attempt with an unknown outcome
	for try := 0; len(batch) > 0; {
		conditions, then, keys := make([]client.Cmp, len(batch)), make([]client.Op, len(batch)),
			make([]client.Op, len(batch))
		for i, w := range batch {
			conditions[i], then[i], keys[i] = client.ModRevision(w.key).Equal(w.mod), w.op(),
				client.OpGet(w.key, client.WithKeysOnly())
		}
		r, err := m.c.Txn(ctx).If(conditions...).Then(then...).Else(keys...).Commit()
		switch {
		case err == nil && r.Succeeded:
			for _, w := range batch {
				m.done.count(w.change.op)
			}
			return nil
		case err == nil:
			// If the attempt with the unknown outcome was applied, the keys already have the wanted
			// state.
			rest, err := m.undecided(ctx, batch, r)
			switch {
			case err != nil:
				return err
			case len(rest) == len(batch):
				return fmt.Errorf("the member has refused changes of %s and the keys after it, of which none has changed", keytext.Quote(batch[0].key))
			}
			batch = rest
			continue
		case len(batch) > 1 &&
			(errors.Is(err, client.ErrTooManyOps) || errors.Is(err, client.ErrRequestTooLarge)):
			half := len(batch) / 2
			if err := m.commitChanges(ctx, batch[:half]); err != nil {
				return err
			}
			batch = batch[half:]
			continue
		case errors.Is(err, client.ErrLeaseNotFound) && try < cli.Attempts:
			if batch, err = m.withoutEnded(ctx, batch); err != nil {
				return err
			}
		case cli.WaitToRetry(ctx, try, err):
			unknown = err
		case unknown != nil || errors.Is(err, client.ErrUncertain):
			return fmt.Errorf("the outcome for %s and the keys after it is unknown: %w",
				keytext.Quote(batch[0].key), cli.CallError(cmp.Or(unknown, err)))
		default:
			return fmt.Errorf("%s and the keys after it: %w", keytext.Quote(batch[0].key),
				cli.CallError(err))
		}
		try++
	}
	return nil
}

// undecided returns the changes whose keys have not changed. It counts and prints the others: some
// keys already have the wanted state.
func (m *merge) undecided(ctx context.Context, batch []*write,
	r *client.TxnResponse) (rest []*write, err error) {
	found, err := cli.Gets(r, len(batch))
	if err != nil {
		return nil, err
	}
	for i, w := range batch {
		now := found[i]
		mod := int64(0)
		if now != nil {
			mod = now.ModRevision
		}
		if mod == w.mod {
			rest = append(rest, w)
			continue
		}
		right, err := m.asWished(ctx, w)
		if err != nil {
			return nil, err
		}
		if right {
			m.done.count(w.change.op)
			continue
		}
		m.done.Conflicts++
		if err := m.printConflict(w, mod); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// asWished reports whether a key already is as a change would leave it.
func (m *merge) asWished(ctx context.Context, w *write) (bool, error) {
	r, err := m.c.Get(ctx, w.key)
	if err != nil {
		return false, err
	}
	now := r.KV()
	if now == nil || w.change.op == opDelete {
		return now == nil && w.change.op == opDelete, nil
	}
	return now.Lease == w.lease && bytes.Equal(now.Value, w.value), nil
}

func (m *merge) printConflict(w *write, mod int64) error {
	if m.out.Format == show.JSON {
		return printLine(m.env.Stdout, struct {
			Conflict keytext.JSON `json:"conflict"`
			Change   string       `json:"change"`
			Planned  int64        `json:"plannedModRevision"`
			Now      int64        `json:"modRevision"`
		}{keytext.JSON(w.key), w.change.op.String(), w.mod, mod})
	}
	what := fmt.Sprintf("was changed at revision %d", mod)
	switch {
	case mod == 0:
		what = "was deleted"
	case w.mod == 0:
		what = fmt.Sprintf("was created, and changed at revision %d", mod)
	}
	_, err := fmt.Fprintf(m.env.Stdout, "CONFLICT %s %s, after the plan was made of revision %d\n",
		keytext.Quote(w.key), what, m.at)
	return err
}

// withoutEnded removes leases from changes if they have ended since the plan.
func (m *merge) withoutEnded(ctx context.Context, batch []*write) (rest []*write, err error) {
	clear(m.leases)
	for _, w := range batch {
		if w.lease != 0 {
			k, err := m.past.Key(w.key)
			if err != nil {
				return nil, err
			}
			k.Lease = int64(w.lease)
			lease, err := m.leaseOf(ctx, k)
			if err != nil {
				return nil, err
			}
			switch {
			case lease != 0:
			case w.change.op == opChange:
				// As in the plan, the key keeps its current lease. If the key has changed, it is a
				// conflict.
				r, err := m.c.Get(ctx, w.key)
				if err != nil {
					return nil, err
				}
				if now := r.KV(); now != nil {
					lease = now.Lease
				}
			case m.skipLeased:
				m.done.Skipped++
				continue
			}
			w.lease = lease
		}
		rest = append(rest, w)
	}
	return rest, nil
}
