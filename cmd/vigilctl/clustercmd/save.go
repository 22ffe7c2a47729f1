package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/outfile"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

const snapshotSaveHelp = `Copy the whole state of one member into a file: keys with all revisions that are
not compacted, leases, users and roles, as of one moment of the call. The member
continues to serve; a learner, and a member without a leader, send the state
that they have.

The file is in etcd's format: vigilctl and etcdutl check and restore it. It gets
its name when it is whole, matches the checksum that the member sends, and is on
disk. It contains all data; only its owner can read it.

Name one member. With several endpoints the command says what each of them is, and the
command line for the one to choose: a follower that has applied everything spares the
leader the work.`

// SnapshotSave returns the command snapshot save.
func SnapshotSave(env *cli.Env) *cobra.Command {
	var yes cli.Yes
	c := &cobra.Command{
		Use:     "save FILE",
		Short:   "Copy the state of one member into a file",
		Long:    snapshotSaveHelp,
		Example: "  vigilctl snapshot save backup.db --endpoints 10.0.0.1:2379",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("snapshot save expects one argument <filename>, not %d; see vigilctl snapshot save --help", len(args))
			}
			if err := outfile.Check(args[0]); err != nil {
				return exit.With(exit.Interrupted, err)
			}
			if len(env.Endpoints) != 1 {
				return exit.With(exit.Interrupted, oneMember(env, c, args))
			}
			if err := env.ConfirmReplacing(c.Context(), yes, args[0],
				"nothing was saved"); err != nil {
				return err
			}
			cl, err := env.Connect(c.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			return save(c, cl, args[0], env.Format == string(show.JSON))
		},
	}
	yes.AddFlag(c)
	return c
}

// oneMember returns the error for a snapshot of several members. It describes each member and
// suggests a command line for the best one: a member that has applied everything, and preferably a
// follower, because the leader has more work.
func oneMember(env *cli.Env, c *cobra.Command, args []string) error {
	err := fmt.Errorf("snapshot must be requested to one selected node, not multiple %v",
		env.Endpoints)
	cl, cerr := env.Connect(c.Context())
	if cerr != nil {
		if len(env.Endpoints) == 0 {
			return cerr
		}
		return fmt.Errorf("%w\n  next: %s", err, env.CommandAt(c, args, env.Endpoints[0]))
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.Context(), answerTimeout)
	defer cancel()
	status := make([]*client.Status, len(env.Config.Endpoints))
	var all sync.WaitGroup
	for i, at := range env.Config.Endpoints {
		all.Go(func() {
			if one, err := cl.At(at); err == nil {
				status[i], _ = one.Maintenance().Status(ctx) // nil if the member does not answer
			}
		})
	}
	all.Wait()
	names := map[uint64]string{}
	if r, err := cl.Cluster().MemberListSerializable(ctx); err == nil {
		for _, m := range r.Members {
			names[m.ID] = screen.SafeLine(0, m.Name)
		}
	}
	var text strings.Builder
	best, most := env.Config.Endpoints[0], -1
	for i, at := range env.Config.Endpoints {
		what, worth := snapshotWorth(status[i], names)
		fmt.Fprintf(&text, "\n  %s: %s", at, what)
		if worth > most {
			best, most = at, worth
		}
	}
	return fmt.Errorf("%w%s\n  next: %s", err, text.String(), env.CommandAt(c, args, best))
}

// snapshotWorth describes a member, and rates a snapshot of it.
func snapshotWorth(r *client.Status, names map[uint64]string) (what string, worth int) {
	if r == nil {
		return "no answer", 0
	}
	what = fmt.Sprintf("%x", r.Header.MemberID)
	if name := names[r.Header.MemberID]; name != "" {
		what = fmt.Sprintf("%s (%s)", name, what)
	}
	behind := r.RaftIndex > r.RaftAppliedIndex
	switch {
	case r.IsLearner:
		what, worth = what+", a learner", 2
	case r.Leader == 0:
		what, worth = what+", knows no leader", 1
	case r.Leader == r.Header.MemberID:
		what, worth = what+", the leader", 3
	case behind:
		what, worth = what+", a follower", 2
	default:
		what, worth = what+", a follower", 4
	}
	if what += fmt.Sprintf(", at revision %d", r.Header.Revision); behind {
		what += fmt.Sprintf("; %d entries are to be applied", r.RaftIndex-r.RaftAppliedIndex)
	}
	return what, worth
}

// save copies a snapshot into a file. Like etcdctl, it exits after every failure with the code for
// an interruption.
func save(c *cobra.Command, cl *client.Client, path string, quiet bool) error {
	s, err := cl.Maintenance().Snapshot(c.Context())
	if err != nil {
		return exit.With(exit.Interrupted, cli.CallError(interrupted(c, err)))
	}
	defer s.Close()
	p := progress.NewBytes(c.ErrOrStderr(), quiet)
	var done int64
	err = outfile.Write(path, s, func(n int) {
		done += int64(n)
		p.Set("fetching "+path, done, s.Size)
	})
	p.End()
	if err != nil {
		return exit.With(exit.Interrupted, cli.CallError(interrupted(c, err)))
	}
	fmt.Fprintf(c.OutOrStdout(), "Snapshot saved at %s\n", path)
	if s.Version != "" {
		fmt.Fprintf(c.OutOrStdout(), "Server version %s\n", s.Version)
	}
	return nil
}

// interrupted shortens an error that an interrupt caused.
func interrupted(c *cobra.Command, err error) error {
	if c.Context().Err() != nil && errors.Is(c.Context().Err(), context.Canceled) {
		return errors.New("interrupted; nothing was saved")
	}
	return err
}
