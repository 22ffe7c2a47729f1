package link

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// owner returns the node whose process has the other end of a connection on loopback, or "" if it
// is none of them. The caller holds n.mu.
func (n *Network) owner(c *net.TCPConn) string {
	inode := socketInode(c.RemoteAddr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port)
	if inode == "" {
		return ""
	}
	for name, pid := range n.mu.pids {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
				return name
			}
		}
	}
	return ""
}

// socketInode finds the socket on 127.0.0.1 with these ports in the kernel's table.
func socketInode(local, remote int) string {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer f.Close()
	want := [2]string{fmt.Sprintf("0100007F:%04X", local), fmt.Sprintf("0100007F:%04X", remote)}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local remote state queues timer retransmits uid timeout inode
		field := strings.Fields(lines.Text())
		if len(field) > 9 && field[1] == want[0] && field[2] == want[1] {
			return field[9]
		}
	}
	return ""
}
