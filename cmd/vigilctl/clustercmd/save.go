package clustercmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/outfile"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
)

const snapshotSaveHelp = `Copy the whole state of one member into a file: keys with all revisions that are
not compacted, leases, users and roles, as of one moment of the call. The member
continues to serve; a learner, and a member without a leader, send the state
that they have.

The file is in etcd's format: vigilctl and etcdutl check and restore it. It gets
its name when it is whole, matches the checksum that the member sends, and is on
disk. It contains all data; only its owner can read it.`

// SnapshotSave returns the command snapshot save.
func SnapshotSave(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "save FILE",
		Short:   "Copy the state of one member into a file",
		Long:    snapshotSaveHelp,
		Example: "  vigilctl snapshot save backup.db --endpoints 10.0.0.1:2379",
		Args:    command.ExactlyOne("snapshot save"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := outfile.Check(args[0]); err != nil {
				return exit.With(exit.Interrupted, err)
			}
			if len(env.Endpoints) != 1 {
				return exit.Usage("snapshot must be requested to one selected node, not multiple %v", env.Endpoints)
			}
			cl, err := env.Connect(c.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			return save(c, cl, args[0], env.Format == string(show.JSON))
		},
	}
}

// save copies a snapshot into a file. The exit code of every failure is that of an interruption, as of etcdctl.
func save(c *cobra.Command, cl *client.Client, path string, quiet bool) error {
	s, err := cl.Snapshot(c.Context())
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

// interrupted replaces an error that an interrupt caused by a short one.
func interrupted(c *cobra.Command, err error) error {
	if c.Context().Err() != nil && errors.Is(c.Context().Err(), context.Canceled) {
		return errors.New("interrupted; nothing was saved")
	}
	return err
}
