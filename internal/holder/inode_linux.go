package holder

import (
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// identityOf returns the device and the inode of a file as /proc/locks names them.
func identityOf(info fs.FileInfo) (device, inode string, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", "", false
	}
	dev := uint64(st.Dev)
	return fmt.Sprintf("%02x:%02x", unix.Major(dev), unix.Minor(dev)),
		strconv.FormatUint(uint64(st.Ino), 10), true
}
