package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisMachine describes where the run takes place; dir is where the servers keep their data.
func ThisMachine(dir string) Machine {
	m := Machine{Processors: runtime.NumCPU(), Go: runtime.Version(), CPU: "unknown processor",
		FileSystem: "unknown file system"}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, v, ok := strings.Cut(line, ":"); ok &&
				strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(b), " ")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil {
		switch int64(st.Type) {
		case unix.TMPFS_MAGIC:
			m.FileSystem = "tmpfs"
		case unix.EXT4_SUPER_MAGIC:
			m.FileSystem = "ext4"
		case unix.XFS_SUPER_MAGIC:
			m.FileSystem = "xfs"
		case unix.BTRFS_SUPER_MAGIC:
			m.FileSystem = "btrfs"
		case unix.OVERLAYFS_SUPER_MAGIC:
			m.FileSystem = "overlayfs"
		default:
			m.FileSystem = fmt.Sprintf("file system %#x", st.Type)
		}
	}
	return m
}
