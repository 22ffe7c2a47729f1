package world

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"vigil/sim/world/abi"
)

// text returns a copy of a text in memory.
func text(mem api.Memory, p, n uint64) string {
	b, _ := mem.Read(uint32(p), uint32(n))
	return string(b)
}

// ownImports are the functions of the simulation that programs import, besides those of WASI.
var ownImports = map[string]hostCall{
	"now": func(p *Process, _ api.Memory, s []uint64) { s[0] = uint64(p.m.w.now) },
	"setup": func(p *Process, mem api.Memory, s []uint64) {
		out, _ := mem.Read(uint32(s[0]), uint32(s[1]))
		all := strings.Join(p.args, "\x00")
		copy(out, all)
		s[0] = uint64(len(all))
	},
	"report": func(p *Process, mem api.Memory, s []uint64) {
		b, _ := mem.Read(uint32(s[0]), uint32(s[1]))
		p.m.w.trace.mix('r', uint64(p.id), uint64(p.m.w.now), sumOf(b))
		if p.m.w.Reported != nil {
			p.m.w.Reported(p.m, slices.Clone(b))
		}
	},
	"listen": func(p *Process, mem api.Memory, s []uint64) {
		a, err := netip.ParseAddrPort(text(mem, s[0], s[1]))
		switch {
		case err != nil || a.Addr() != p.m.Addr:
			s[0] = result(-7)
		case p.ports[a.Port()] != nil:
			s[0] = result(-11)
		default:
			l := &listener{p: p, port: a.Port()}
			p.ports[a.Port()] = l
			s[0] = uint64(p.open(l))
		}
	},
	"dial": func(p *Process, mem api.Memory, s []uint64) {
		a, err := netip.ParseAddrPort(text(mem, s[0], s[1]))
		if err != nil {
			s[0] = result(-7)
			return
		}
		s[0] = uint64(p.open(p.m.w.network.dial(p, a)))
	},
	"dialed": func(p *Process, _ api.Memory, s []uint64) {
		e, ok := p.fds[int32(s[0])].(*endpoint)
		switch {
		case !ok:
			s[0] = result(-6)
		case e.refused:
			s[0] = result(-9)
		case e.broken:
			s[0] = result(-10)
		case !e.connected:
			s[0] = result(-8)
		default:
			s[0] = 0
		}
	},
	"addrs": func(p *Process, mem api.Memory, s []uint64) {
		e, ok := p.fds[int32(s[0])].(*endpoint)
		if !ok {
			s[0] = result(-6)
			return
		}
		b := e.local.String() + " " + e.remote.String()
		mem.WriteString(uint32(s[1]), b)
		s[0] = uint64(len(b))
	},
	"disk_name": func(p *Process, mem api.Memory, s []uint64) {
		a, b := text(mem, s[1], s[2]), text(mem, s[3], s[4])
		out, _ := mem.Read(uint32(s[5]), uint32(s[6]))
		r := p.m.disk.name(p, uint32(s[0]), a, b, out)
		p.m.w.trace.mix('d', uint64(p.id), uint64(uint32(s[0])), sumOf([]byte(a)), uint64(r))
		s[0] = result(r)
	},
	"disk_file": func(p *Process, _ api.Memory, s []uint64) {
		r := p.m.disk.file(p, uint32(s[0]), int32(s[1]), int64(s[2]))
		p.m.w.trace.mix('f', uint64(p.id), uint64(uint32(s[0])), uint64(uint32(s[1])),
			s[2], uint64(r))
		s[0] = result(r)
	},
	"disk_read": func(p *Process, mem api.Memory, s []uint64) {
		f, ok := p.fds[int32(s[0])].(*openFile)
		b, inside := mem.Read(uint32(s[1]), uint32(s[2]))
		if !ok || f.lock != nil || !inside {
			s[0] = result(-6)
			return
		}
		n, err := f.ReadAt(b, int64(s[3]))
		switch {
		case n > 0:
			s[0] = uint64(n)
		case errors.Is(err, io.EOF):
			s[0] = result(abi.Ended)
		default:
			s[0] = result(code(err))
		}
	},
	"disk_write": func(p *Process, mem api.Memory, s []uint64) {
		f, ok := p.fds[int32(s[0])].(*openFile)
		b, inside := mem.Read(uint32(s[1]), uint32(s[2]))
		if !ok || f.lock != nil || !inside {
			s[0] = result(-6)
			return
		}
		n, err := f.WriteAt(b, int64(s[3]))
		p.m.w.trace.mix('w', uint64(p.id), uint64(uint32(s[0])), s[3], uint64(n), sumOf(b))
		if s[0] = uint64(n); err != nil && n == 0 {
			s[0] = result(code(err))
		}
	},
	"disk_hangs": func(p *Process, mem api.Memory, s []uint64) {
		if name := text(mem, s[1], s[2]); p.m.disk.hangs(uint32(s[0]), name) {
			s[0] = 1
		} else {
			s[0] = 0
		}
	},
	"disk_delay": func(p *Process, _ api.Memory, s []uint64) {
		s[0] = uint64(p.m.disk.delay())
	},
}

// result is a negative number on the stack.
func result(n int64) uint64 { return uint64(n) }
