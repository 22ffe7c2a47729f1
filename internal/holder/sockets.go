package holder

import (
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// tcpInode returns the inode of the socket that listens on an address, or keeps others from it by
// listening on all addresses.
func tcpInode(address string) (inode string) {
	want, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	nearest := 0
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			// 0: 0100007F:094B 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 12345
			// ...
			f := strings.Fields(line)
			const listening = "0A"
			if len(f) < 10 || f[3] != listening {
				continue
			}
			have, ok := parseAddress(f[1])
			if !ok || have.Port() != want.Port() {
				continue
			}
			if n := nearness(have.Addr(), want.Addr().Unmap()); n > nearest {
				nearest, inode = n, f[9]
			}
		}
	}
	return inode
}

// nearness says how likely a socket that listens on one address keeps another from listening on
// want: 0 if it cannot.
func nearness(have, want netip.Addr) int {
	switch {
	case have == want:
		return 3
	case !have.IsUnspecified() && !want.IsUnspecified():
		return 0
	case have.Is4() == want.Is4():
		return 2
	case have == netip.IPv6Unspecified() || want == netip.IPv6Unspecified():
		return 1 // it has the addresses of IPv4 too, unless it was opened without them
	}
	return 0
}

// parseAddress reads an address as the kernel prints it: each word of 32 bits in the order of the
// bytes of the processor, which is taken for little-endian, and the port.
func parseAddress(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, ":")
	ip, err := hex.DecodeString(host)
	if err != nil || len(ip)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(ip)
	number, err := hex.DecodeString(port)
	if !ok || err != nil || len(number) != 2 {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(number[0])<<8|uint16(number[1])), true
}

// unixInode returns the inode of the socket that listens at a path. Connections to it have the same
// path, and number 0 while nobody has accepted them.
func unixInode(path string) string {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		// 0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/socket
		const listening = "00010000"
		if f := strings.Fields(line); len(f) >= 8 && f[3] == listening && f[7] == path {
			return f[6]
		}
	}
	return ""
}
