// Package holder finds the process that holds an address or the lock of a file, so that an error
// can name it. It only reads what the kernel shows. It finds nothing on systems other than Linux,
// and no processes of other users or in other namespaces.
package holder

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// describe returns the name and the number of a process. It replaces characters of the name that
// are not printable ASCII, since any user can choose a name.
func describe(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s, process %d", printable(strings.TrimSuffix(string(name), "\n")), pid)
}

func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// OfAddress returns the name and the number of the process that listens on an address of TCP or on
// the file of a Unix socket, empty if it is not known.
func OfAddress(network, address string) string {
	inode := ""
	if network == "unix" {
		inode = unixInode(address)
	} else {
		inode = tcpInode(address)
	}
	if inode == "" {
		return ""
	}
	want := "socket:[" + inode + "]"
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, d := range descriptors {
		if to, err := os.Readlink(d); err != nil || to != want {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(d, "/proc/%d/", &pid); err == nil {
			return describe(pid)
		}
	}
	return ""
}

// OfLock returns the name and the number of the process that has locked a file, empty if unknown.
func OfLock(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	device, inode, ok := identityOf(info)
	if !ok {
		return ""
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 4711 08:01:262145 0 EOF
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		colon := strings.LastIndexByte(f[5], ':')
		if colon < 0 {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(f[4], &pid); err != nil || pid <= 0 || f[5][colon+1:] != inode {
			continue
		}
		// Files of other file systems have the same number. Some file systems call their device
		// otherwise here.
		if f[5][:colon] == device || hasOpen(pid, info) {
			return describe(pid)
		}
	}
	return ""
}

// hasOpen reports whether this process can see that another one has a file open.
func hasOpen(pid int, file fs.FileInfo) bool {
	descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(descriptors, func(d string) bool {
		info, err := os.Stat(d)
		return err == nil && os.SameFile(info, file)
	})
}
