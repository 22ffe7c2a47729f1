package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"vigil/client"
)

const snapshotSaveHelp = `Copy the whole state of one member into a file: keys with all revisions that are
not compacted, leases, users and roles, as of one moment of the call. The member
goes on serving; a learner, and a member without a leader, give what they have.

The file is in etcd's format: vigilctl and etcdutl check and restore it. It gets
its name when it is whole, compared with the checksum that the member sends, and
on disk. Who can read it can read everything in it; it is made for its owner only.`

func (a *app) snapshotSaveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "save FILE",
		Short:   "Copy the state of one member into a file",
		Long:    snapshotSaveHelp,
		Example: "  vigilctl snapshot save backup.db --endpoints 10.0.0.1:2379",
		Args:    exactlyOne("snapshot save"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkTarget(args[0]); err != nil {
				return &exit{exitFailure, err}
			}
			if len(a.endpoints) != 1 {
				return badArgs("snapshot must be requested to one selected node, not multiple %v", a.endpoints)
			}
			cl, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			return save(c, cl, args[0], format(a.format))
		},
	}
}

// save copies a snapshot into a file.
func save(c *cobra.Command, cl *client.Client, path string, f format) error {
	s, err := cl.Snapshot(c.Context())
	if err != nil {
		return &exit{exitFailure, failed(interrupted(c, err))}
	}
	defer s.Close()
	p := newWork(c.ErrOrStderr(), f)
	var done int64
	err = writeFile(path, s, func(n int) {
		done += int64(n)
		p.show("fetching "+path, done, s.Size)
	})
	p.end()
	if err != nil {
		return &exit{exitFailure, failed(interrupted(c, err))}
	}
	fmt.Fprintf(c.OutOrStdout(), "Snapshot saved at %s\n", path)
	if s.Version != "" {
		fmt.Fprintf(c.OutOrStdout(), "Server version %s\n", s.Version)
	}
	return nil
}

// interrupted says in short that somebody has interrupted the command, if that is what an error comes from.
func interrupted(c *cobra.Command, err error) error {
	if c.Context().Err() != nil && errors.Is(c.Context().Err(), context.Canceled) {
		return errors.New("interrupted; nothing was saved")
	}
	return err
}

// counting tells how much was read.
type counting struct {
	r    io.Reader
	told func(n int)
}

func (c counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.told(n)
	return n, err
}
