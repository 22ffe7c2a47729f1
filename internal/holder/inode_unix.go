//go:build unix

package holder

import (
	"io/fs"
	"strconv"
	"syscall"
)

func inodeOf(info fs.FileInfo) (string, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	return strconv.FormatUint(uint64(st.Ino), 10), true
}
