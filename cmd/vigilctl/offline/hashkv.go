package offline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/facts"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/kv"
	"vigil/internal/offline/restore"
	"vigil/internal/vfs"
)

const hashKVHelp = `Print the hash of the history in a backup: what endpoint hashkv prints for a member
with the same history, of this program or of etcd.

SOURCE is what snapshot restore takes. The history is laid out in a temporary
directory, below TMPDIR if that is set, which needs the space of SOURCE.`

// HashKV returns the command hashkv.
func HashKV() *cobra.Command {
	var out *facts.Format
	var rev int64
	c := &cobra.Command{
		Use:     "hashkv SOURCE",
		Short:   "Print the hash of the history in a backup",
		Long:    hashKVHelp,
		Example: "  vigilctl hashkv backup.db --rev 1000",
		Args:    command.ExactlyOne("hashkv"),
		RunE: func(c *cobra.Command, args []string) error {
			res, err := hashKV(c, args[0], rev, out.Format == show.JSON)
			if err != nil {
				return exit.With(exit.Failure, err)
			}
			return out.Facts(c.OutOrStdout(), struct {
				Hash            uint32 `json:"hash"`
				HashRevision    int64  `json:"hashRevision"`
				CompactRevision int64  `json:"compactRevision"`
			}{res.Hash, res.HashRevision, res.CompactRevision}, []facts.Fact{
				facts.New("Hash", "hash", fmt.Sprint(res.Hash), res.Hash),
				facts.New("Hash revision", "hash revision", fmt.Sprint(res.HashRevision),
					res.HashRevision),
				facts.New("Compact revision", "compact revision", fmt.Sprint(res.CompactRevision),
					res.CompactRevision),
			})
		},
	}
	c.Flags().Int64Var(&rev, "rev", 0, "the `REVISION` up to which to hash; 0 is the newest")
	out = facts.AddFacts(c.Flags())
	return c
}

func hashKV(c *cobra.Command, source string, rev int64, quiet bool) (res kv.HashResult, err error) {
	dir, err := os.MkdirTemp("", "vigilctl-hashkv-")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := progress.NewBytes(c.ErrOrStderr(), quiet)
	defer p.End()
	return restore.HashKV(c.Context(),
		restore.Options{FS: vfs.OS(), Source: filepath.Clean(source), DataDir: dir, SkipHash: true,
			Progress: p.Set}, rev)
}
