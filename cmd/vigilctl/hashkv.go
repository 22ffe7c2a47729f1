package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"vigil/internal/kv"
	"vigil/internal/offline/restore"
	"vigil/internal/vfs"
)

const hashKVHelp = `Print the hash of the history in a backup: what endpoint hashkv prints for a member
with the same history, of this program or of etcd.

SOURCE is what snapshot restore takes. The history is laid out in a temporary
directory, below TMPDIR if that is set, which needs the space of SOURCE.`

func hashKVCommand() *cobra.Command {
	var out backupFormat
	var rev int64
	c := &cobra.Command{
		Use:     "hashkv SOURCE",
		Short:   "Print the hash of the history in a backup",
		Long:    hashKVHelp,
		Example: "  vigilctl hashkv backup.db --rev 1000",
		Args:    exactlyOne("hashkv"),
		RunE: func(c *cobra.Command, args []string) error {
			res, err := hashKV(c, args[0], rev, format(out))
			if err != nil {
				return &exit{exitFailure, err}
			}
			return out.print(c.OutOrStdout(), struct {
				Hash            uint32 `json:"hash"`
				HashRevision    int64  `json:"hashRevision"`
				CompactRevision int64  `json:"compactRevision"`
			}{res.Hash, res.HashRevision, res.CompactRevision}, []field{
				{"Hash", "hash", fmt.Sprint(res.Hash), res.Hash},
				{"Hash revision", "hash revision", fmt.Sprint(res.HashRevision), res.HashRevision},
				{"Compact revision", "compact revision", fmt.Sprint(res.CompactRevision), res.CompactRevision},
			})
		},
	}
	c.Flags().Int64Var(&rev, "rev", 0, "the `REVISION` up to which to hash; 0 is the newest")
	out.addTo(c.Flags())
	return c
}

func hashKV(c *cobra.Command, source string, rev int64, f format) (res kv.HashResult, err error) {
	dir, err := os.MkdirTemp("", "vigilctl-hashkv-")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := newWork(c.ErrOrStderr(), f)
	defer p.end()
	return restore.HashKV(c.Context(), restore.Options{FS: vfs.OS(), Source: filepath.Clean(source), DataDir: dir, SkipHash: true, Progress: p.show}, rev)
}
