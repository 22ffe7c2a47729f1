package world

import (
	"bytes"
	"encoding/binary"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// The error numbers of WASI that are used.
const (
	wasiOK    = 0
	wasiAgain = 6
	wasiBadFD = 8
	wasiReset = 15
	wasiNoSys = 52
	wasiPipe  = 64
)

// imports are the functions that programs may call, by name. The others of WASI fail.
var imports map[string]hostCall

func init() {
	imports = map[string]hostCall{
		"args_sizes_get": func(p *Process, mem api.Memory, s []uint64) {
			total := 0
			for _, a := range p.argv() {
				total += len(a) + 1
			}
			mem.WriteUint32Le(uint32(s[0]), uint32(len(p.argv())))
			mem.WriteUint32Le(uint32(s[1]), uint32(total))
			s[0] = wasiOK
		},
		"args_get": func(p *Process, mem api.Memory, s []uint64) {
			at := uint32(s[1])
			for i, a := range p.argv() {
				mem.WriteUint32Le(uint32(s[0])+uint32(4*i), at)
				mem.WriteString(at, a+"\x00")
				at += uint32(len(a)) + 1
			}
			s[0] = wasiOK
		},
		"environ_sizes_get": func(p *Process, mem api.Memory, s []uint64) {
			mem.WriteUint32Le(uint32(s[0]), 0)
			mem.WriteUint32Le(uint32(s[1]), 0)
			s[0] = wasiOK
		},
		"environ_get": func(p *Process, mem api.Memory, s []uint64) { s[0] = wasiOK },
		"clock_time_get": func(p *Process, mem api.Memory, s []uint64) {
			mem.WriteUint64Le(uint32(s[2]), uint64(p.now(uint32(s[0]) == 0)))
			s[0] = wasiOK
		},
		"random_get": func(p *Process, mem api.Memory, s []uint64) {
			b, _ := mem.Read(uint32(s[0]), uint32(s[1]))
			for i := range b {
				b[i] = byte(p.rng.Uint32())
			}
			s[0] = wasiOK
		},
		"sched_yield": func(p *Process, mem api.Memory, s []uint64) { s[0] = wasiOK },
		"proc_exit": func(p *Process, mem api.Memory,
			s []uint64) {
			panic(sys.NewExitError(uint32(s[0])))
		},
		"poll_oneoff": pollOneoff,
		"fd_write":    fdWrite,
		"fd_read":     fdRead,
		"fd_close": func(p *Process, mem api.Memory, s []uint64) {
			fd := int32(s[0])
			s[0] = wasiBadFD
			if o := p.fds[fd]; o != nil {
				delete(p.fds, fd)
				o.close()
				s[0] = wasiOK
			}
		},
		"fd_fdstat_get": func(p *Process, mem api.Memory, s []uint64) {
			const device, socket, nonBlocking = 2, 6, 4
			var b [24]byte
			switch fd := int32(s[0]); {
			case fd <= 2:
				b[0] = device
			case p.fds[fd] == nil:
				s[0] = wasiBadFD
				return
			default:
				b[0], b[2] = socket, nonBlocking
			}
			mem.Write(uint32(s[1]), b[:])
			s[0] = wasiOK
		},
		"fd_fdstat_set_flags": func(p *Process, mem api.Memory, s []uint64) { s[0] = wasiOK },
		"fd_prestat_get":      func(p *Process, mem api.Memory, s []uint64) { s[0] = wasiBadFD },
		"sock_accept": func(p *Process, mem api.Memory, s []uint64) {
			l, ok := p.fds[int32(s[0])].(*listener)
			switch {
			case !ok:
				s[0] = wasiBadFD
			case len(l.backlog) == 0:
				s[0] = wasiAgain
			default:
				mem.WriteUint32Le(uint32(s[2]), uint32(l.accept()))
				s[0] = wasiOK
			}
		},
		"sock_shutdown": func(p *Process, mem api.Memory, s []uint64) {
			if e, ok := p.fds[int32(s[0])].(*endpoint); ok {
				e.shutdown()
			}
			s[0] = wasiOK
		},
	}
	for name, f := range ownImports {
		imports[name] = f
	}
}

func (p *Process) argv() []string { return append([]string{"guest"}, p.m.w.guest.args...) }

// vectors calls do for each buffer of a list in memory, until it returns false.
func vectors(mem api.Memory, at, n uint32, do func(b []byte) bool) {
	for i := range n {
		p, _ := mem.ReadUint32Le(at + 8*i)
		size, _ := mem.ReadUint32Le(at + 8*i + 4)
		if b, ok := mem.Read(p, size); size > 0 && (!ok || !do(b)) {
			return
		}
	}
}

func fdWrite(p *Process, mem api.Memory, s []uint64) {
	fd, total, result := int32(s[0]), 0, uint64(wasiOK)
	switch o := p.fds[fd].(type) {
	case *endpoint:
		vectors(mem, uint32(s[1]), uint32(s[2]), func(b []byte) bool {
			n, errno := o.write(b)
			total += n
			if errno != wasiOK && total == 0 {
				result = errno
			}
			return n == len(b)
		})
	default:
		if fd != 1 && fd != 2 {
			s[0] = wasiBadFD
			return
		}
		vectors(mem, uint32(s[1]), uint32(s[2]), func(b []byte) bool {
			p.print(b)
			total += len(b)
			return true
		})
	}
	mem.WriteUint32Le(uint32(s[3]), uint32(total))
	s[0] = result
}

// print adds lines of the log of the process to the trace.
func (p *Process) print(b []byte) {
	p.line = append(p.line, b...)
	for {
		n := bytes.IndexByte(p.line, '\n')
		if n < 0 {
			return
		}
		p.m.load.add(p.m.w.now, Work{Lines: 1})
		p.m.w.Note(p.m, "| %s", p.line[:n])
		if p.m.w.Printed != nil {
			p.m.w.Printed(p.m, p.line[:n])
		}
		p.line = p.line[n+1:]
	}
}

func fdRead(p *Process, mem api.Memory, s []uint64) {
	e, ok := p.fds[int32(s[0])].(*endpoint)
	if !ok {
		s[0] = wasiBadFD
		return
	}
	total, result := 0, uint64(wasiOK)
	vectors(mem, uint32(s[1]), uint32(s[2]), func(b []byte) bool {
		n, errno := e.read(b)
		total += n
		if errno != wasiOK && total == 0 {
			result = errno
		}
		return n == len(b)
	})
	mem.WriteUint32Le(uint32(s[3]), uint32(total))
	s[0] = result
}

// The sizes and tags of poll_oneoff.
const (
	subscriptionSize, eventSize = 48, 32
	tagClock, tagRead, tagWrite = 0, 1, 2
)

// pollOneoff waits for one of a list of descriptors and times.
func pollOneoff(p *Process, mem api.Memory, s []uint64) {
	in, out, n := uint32(s[0]), uint32(s[1]), uint32(s[2])
	subs, ok := mem.Read(in, n*subscriptionSize)
	if !ok {
		s[0] = wasiBadFD
		return
	}
	p.poll++
	shortest := int64(-1)
	for ; len(subs) > 0; subs = subs[subscriptionSize:] {
		if subs[8] != tagClock {
			continue
		}
		// Go's runtime uses durations only.
		if d := int64(binary.LittleEndian.Uint64(subs[24:])); shortest < 0 || d < shortest {
			shortest = max(d, 0)
		}
	}
	end := p.m.clock.monotonic(p.m.w.now) + shortest
	if shortest > 0 {
		p.wakeAfter(shortest)
	}
	for {
		over := shortest >= 0 && p.m.clock.monotonic(p.m.w.now) >= end
		if events := p.pollOnce(mem, in, out, n, over); events > 0 || over {
			mem.WriteUint32Le(uint32(s[3]), events)
			s[0] = wasiOK
			p.poll++
			return
		}
		p.park()
		if shortest > 0 && p.m.clock.monotonic(p.m.w.now) < end {
			p.poll++
			p.wakeAfter(end - p.m.clock.monotonic(p.m.w.now))
		}
	}
}

// pollOnce writes an event for each subscription that is ready, and counts them.
func (p *Process) pollOnce(mem api.Memory, in, out, n uint32, over bool) (events uint32) {
	subs, _ := mem.Read(in, n*subscriptionSize)
	result, _ := mem.Read(out, n*eventSize)
	for ; len(subs) > 0; subs = subs[subscriptionSize:] {
		ready, errno := over, uint16(0)
		if tag := subs[8]; tag != tagClock {
			o := p.fds[int32(binary.LittleEndian.Uint32(subs[16:]))]
			switch {
			case o == nil:
				ready, errno = true, wasiBadFD
			case tag == tagRead:
				ready = o.readable()
			default:
				ready = o.writable()
			}
		}
		if !ready {
			continue
		}
		e := result[events*eventSize:][:eventSize]
		clear(e)
		copy(e, subs[:8])
		binary.LittleEndian.PutUint16(e[8:], errno)
		e[10] = subs[8]
		events++
	}
	return events
}
