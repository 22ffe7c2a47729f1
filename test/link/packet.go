package link

import "encoding/binary"

// An IPv4 packet, as the kernel writes it.
type packet []byte

const (
	ipHeader   = 20 // without options, which the kernel does not send here
	icmp       = 1
	tcp        = 6
	finFlag    = 1
	synFlag    = 2
	rstFlag    = 4
	ackFlag    = 16
	timeToLive = 64
)

// valid reports whether the packet has an IPv4 header without options.
func (p packet) valid() bool { return len(p) >= ipHeader && p[0] == 0x45 }

func (p packet) source() [4]byte { return [4]byte(p[12:16]) }
func (p packet) target() [4]byte { return [4]byte(p[16:20]) }

// segment returns the TCP header and data, or nil if it is another packet or a fragment.
func (p packet) segment() segment {
	if p[9] != tcp || len(p) < ipHeader+20 || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
		return nil
	}
	return segment(p[ipHeader:])
}

type segment []byte

func (s segment) sourcePort() uint16 { return binary.BigEndian.Uint16(s) }
func (s segment) targetPort() uint16 { return binary.BigEndian.Uint16(s[2:]) }
func (s segment) seq() uint32        { return binary.BigEndian.Uint32(s[4:]) }
func (s segment) ack() uint32        { return binary.BigEndian.Uint32(s[8:]) }
func (s segment) has(flag byte) bool { return s[13]&flag != 0 }

// dials reports whether the packet begins a connection.
func (p packet) dials() bool {
	s := p.segment()
	return s != nil && s.has(synFlag) && !s.has(ackFlag)
}

// flow is a TCP connection, in the direction of a packet.
type flow struct {
	source, target         [4]byte
	sourcePort, targetPort uint16
}

func (f flow) reverse() flow { return flow{f.target, f.source, f.targetPort, f.sourcePort} }

func flowOf(p packet, s segment) flow {
	return flow{p.source(), p.target(), s.sourcePort(), s.targetPort()}
}

// reset returns a packet that resets a connection: seq must be the next number that the target
// expects.
func (f flow) reset(seq uint32) packet {
	p := newPacket(f.source, f.target, tcp, 20)
	s := p[ipHeader:]
	binary.BigEndian.PutUint16(s, f.sourcePort)
	binary.BigEndian.PutUint16(s[2:], f.targetPort)
	binary.BigEndian.PutUint32(s[4:], seq)
	s[12] = 5 << 4 // the length of the header in words
	s[13] = rstFlag
	pseudo := sum(p[12:20]) + tcp + uint32(len(s))
	binary.BigEndian.PutUint16(s[16:], checksum(pseudo+sum(s)))
	return p
}

// unreachable returns the error that a router sends for a packet that it cannot deliver.
func (p packet) unreachable(router [4]byte) packet {
	cause := p[:min(len(p), ipHeader+8)]
	e := newPacket(router, p.source(), icmp, 8+len(cause))
	m := e[ipHeader:]
	m[0], m[1] = 3, 1 // the host is unreachable
	copy(m[8:], cause)
	binary.BigEndian.PutUint16(m[2:], checksum(sum(m)))
	return e
}

func newPacket(source, target [4]byte, protocol byte, size int) packet {
	p := make(packet, ipHeader+size)
	p[0] = 0x45
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[8], p[9] = timeToLive, protocol
	copy(p[12:], source[:])
	copy(p[16:], target[:])
	binary.BigEndian.PutUint16(p[10:], checksum(sum(p[:ipHeader])))
	return p
}

// sum adds the 16-bit words of b.
func sum(b []byte) (n uint32) {
	for ; len(b) > 1; b = b[2:] {
		n += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		n += uint32(b[0]) << 8
	}
	return n
}

// checksum is the Internet checksum of a sum of words.
func checksum(n uint32) uint16 {
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return ^uint16(n)
}
