package archivecmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
	"vigil/internal/offline/archived"
)

// maxLeases limits the memory for leases.
const maxLeases = 100_000

// operation says what to do with a key.
type operation byte

const (
	opCreate operation = 'c'
	opChange operation = 'm'
	opDelete operation = 'd'
)

func (o operation) String() string {
	return map[operation]string{opCreate: "create", opChange: "change", opDelete: "delete"}[o]
}

// change is a change to a key, on condition that the key is still as in the plan.
type change struct {
	op  operation
	key string
	// mod is the revision of the key in the plan, 0 if it did not exist. lease is the lease to
	// attach.
	mod   int64
	lease client.LeaseID
}

// plan counts what would change.
type plan struct {
	Create int64 `json:"create"`
	Change int64 `json:"change"`
	Delete int64 `json:"delete"`
	// Same counts keys with equal values. New counts keys that did not exist then; they stay.
	Same int64 `json:"same"`
	New  int64 `json:"newKept"`
	// Unleased counts keys to create whose lease has ended. It does not include Skipped, the keys
	// that are left out for that reason.
	Unleased int64 `json:"withoutLease"`
	Skipped  int64 `json:"skippedLeased"`
}

func (p *plan) changes() int64 { return p.Create + p.Change + p.Delete }

// merge restores keys into a running cluster. It keeps the plan in a file to save memory. It makes
// a change only if the key is still as in the plan.
type merge struct {
	*keys
	past    *archived.Past
	c       *client.Client
	archive string // the ID of the archive's cluster
	dir     string

	// cluster and at are the cluster and the revision of the plan.
	cluster string
	at      int64
	leases  map[client.LeaseID]bool // whether each lease exists
	plan    plan
	done    done
}

// mergeKeys makes the plan, asks for confirmation, and changes the cluster.
func (m *merge) mergeKeys(ctx context.Context) error {
	j, err := newJournal(m.dir)
	if err != nil {
		return err
	}
	defer j.close()
	if err := m.makePlan(ctx, j); err != nil {
		return err
	}
	if err := m.printPlan(); err != nil {
		return err
	}
	if m.dryRun || m.plan.changes() == 0 {
		return nil
	}
	if !m.yes {
		if err := m.confirm(ctx); err != nil {
			return err
		}
	}
	return m.applyJournal(ctx, j)
}

// makePlan compares the keys in the archive with the keys in the cluster at one revision.
func (m *merge) makePlan(ctx context.Context, j *journal) error {
	r, err := m.c.Get(ctx, m.prefix, client.WithPrefix(), client.WithCountOnly())
	if err != nil {
		return err
	}
	m.at, m.cluster = r.Header.Revision, fmt.Sprintf("%x", r.Header.ClusterID)
	then, stopThen := iter.Pull2(m.past.Keys(ctx, m.prefix, client.PrefixEnd(m.prefix)))
	defer stopThen()
	now, stopNow := iter.Pull2(m.c.List(ctx, m.prefix, client.WithPrefix(),
		client.WithRevision(m.at)).All())
	defer stopNow()
	old, err, more := then()
	current, errNow, exists := now()
	for more || exists {
		switch {
		case more && err != nil:
			return err
		case exists && errors.Is(errNow, client.ErrCompacted):
			return fmt.Errorf("revision %d of the cluster was compacted while the plan was made: run the command again (%w)", m.at, errNow)
		case exists && errNow != nil:
			return errNow
		}
		c := change{}
		switch order := strings.Compare(string(keyOf(old)), current.Key); {
		case !exists || more && order < 0:
			c, err = m.planMissing(ctx, old)
		case !more || order > 0:
			c = m.newKey(&current)
		default:
			c, err = m.planExisting(ctx, old, &current)
		}
		if err == nil && c.op != 0 {
			err = m.recordChange(j, c)
		}
		if err != nil {
			return err
		}
		takeOld, takeNow := more && (!exists || string(old.Key) <= current.Key),
			exists && (!more || current.Key <= string(old.Key))
		if takeOld {
			old, err, more = then()
		}
		if takeNow {
			current, errNow, exists = now()
		}
	}
	return j.flush()
}

func keyOf(k *archived.Key) []byte {
	if k == nil {
		return nil
	}
	return k.Key
}

// planMissing decides about a key that does not exist now. A result without an operation means no
// change.
func (m *merge) planMissing(ctx context.Context, old *archived.Key) (change, error) {
	lease, err := m.leaseOf(ctx, old)
	if err != nil {
		return change{}, err
	}
	if old.Lease != 0 && lease == 0 {
		if m.skipLeased {
			m.plan.Skipped++
			return change{}, nil
		}
		m.plan.Unleased++
	}
	m.plan.Create++
	return change{opCreate, string(old.Key), 0, lease}, nil
}

// planExisting decides about a key that exists. The key keeps its current lease if its archived
// lease has ended.
func (m *merge) planExisting(ctx context.Context, old *archived.Key,
	now *client.KeyValue) (change, error) {
	lease, err := m.leaseOf(ctx, old)
	if err != nil {
		return change{}, err
	}
	if old.Lease != 0 && lease == 0 {
		lease = now.Lease
	}
	if now.Lease == lease && bytes.Equal(now.Value, old.Value) {
		m.plan.Same++
		return change{}, nil
	}
	m.plan.Change++
	return change{opChange, now.Key, now.ModRevision, lease}, nil
}

// newKey decides about a key that did not exist then.
func (m *merge) newKey(now *client.KeyValue) change {
	if !m.delete {
		m.plan.New++
		return change{}
	}
	m.plan.Delete++
	return change{opDelete, now.Key, now.ModRevision, 0}
}

// leaseOf returns the archived lease of a key if the lease still exists, otherwise 0.
func (m *merge) leaseOf(ctx context.Context, k *archived.Key) (client.LeaseID, error) {
	id := client.LeaseID(k.Lease)
	if id == 0 {
		return 0, nil
	}
	exists, known := m.leases[id]
	if !known {
		r, err := m.c.TimeToLive(ctx, id, false)
		if err != nil {
			return 0, err
		}
		if exists = r.Granted > 0; len(m.leases) >= maxLeases || m.leases == nil {
			m.leases = map[client.LeaseID]bool{}
		}
		m.leases[id] = exists
	}
	if !exists {
		return 0, nil
	}
	return id, nil
}

// recordChange writes a change into the journal, and prints it if it is among the first.
func (m *merge) recordChange(j *journal, c change) error {
	if err := j.addChange(&c); err != nil {
		return err
	}
	if m.plan.changes() > int64(m.list) {
		return nil
	}
	if m.out.Format == show.JSON {
		return printLine(m.env.Stdout, struct {
			Change string       `json:"change"`
			Key    keytext.JSON `json:"key"`
			keytext.Metadata
		}{c.op.String(), keytext.JSON(c.key),
			keytext.Metadata{ModRevision: c.mod, Lease: keytext.Lease(c.lease)}})
	}
	_, err := fmt.Fprintf(m.env.Stdout, "%s %s\n", c.op, keytext.Quote(c.key))
	return err
}

// printPlan prints the counts of the plan.
func (m *merge) printPlan() error {
	p, w := &m.plan, m.env.Stdout
	if m.out.Format == show.JSON {
		return printLine(w, struct {
			Plan            *plan             `json:"plan"`
			Prefix          keytext.JSON      `json:"prefix"`
			Revision        int64             `json:"revision"`
			Index           uint64            `json:"index"`
			Base            string            `json:"base"`
			Cluster         string            `json:"cluster"`
			ClusterRevision int64             `json:"clusterRevision"`
			ArchiveCluster  string            `json:"archiveCluster"`
			Missing         []string          `json:"missing,omitempty"`
			Damages         []archived.Damage `json:"damages,omitempty"`
		}{p, keytext.JSON(m.prefix), m.past.Revision, m.past.Index, m.past.Base, m.cluster, m.at,
			m.archive, m.past.Missing, m.past.Damages})
	}
	if rest := p.changes() - int64(m.list); rest > 0 {
		fmt.Fprintf(w, "... and %d more\n", rest)
	}
	fmt.Fprintf(w, "revision %d of the archive (index %d) against revision %d of cluster %s: %d to create, %d to change, %d to delete, %d the same\n",
		m.past.Revision, m.past.Index, m.at, m.cluster, p.Create, p.Change, p.Delete, p.Same)
	for _, note := range []struct {
		n    int64
		text string
	}{
		{p.New, "did not exist then and %s left: --delete-new deletes such keys"},
		{p.Unleased, "had a lease that has ended and %s created without one: --skip-leased leaves such keys out"},
		{p.Skipped, "had a lease that has ended and %s left out"},
	} {
		if note.n > 0 {
			is := "are"
			if note.n == 1 {
				is = "is"
			}
			fmt.Fprintf(w, "%s "+note.text+"\n", amount.Count(int(note.n), "key"), is)
		}
	}
	if m.cluster != m.archive {
		fmt.Fprintf(m.env.Stderr,
			"note: the archive is of cluster %s and the keys go to cluster %s\n",
			m.archive, m.cluster)
	}
	return nil
}

// confirm asks for confirmation to change the cluster.
func (m *merge) confirm(ctx context.Context) error {
	fmt.Fprintf(m.env.Stderr, "change %s of cluster %s? Type yes: ",
		amount.Count(int(m.plan.changes()), "key"), m.cluster)
	line, err := bufio.NewReader(io.LimitReader(m.env.Input(ctx), 1<<10)).ReadString('\n')
	if errors.Is(err, cli.ErrInterrupted) {
		return err
	}
	if strings.TrimSpace(line) != "yes" {
		return exit.With(exit.Failure,
			errors.New("nothing was changed: the answer was not yes; --yes changes the cluster without a question"))
	}
	return nil
}

// printLine prints a value as one line of JSON.
func printLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
