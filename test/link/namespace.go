package link

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace with a loopback interface and one to the switch.
type namespace struct {
	ns  *os.File
	dev *os.File // a read returns a packet that was sent, a write delivers one
}

// device is the name of the interface in every namespace.
const device = "vigil0"

// newNamespace returns a namespace with an address, in a network of 256 addresses.
func newNamespace(addr [4]byte) (*namespace, error) {
	s := &namespace{}
	err := elsewhere(func() error {
		return os.NewSyscallError("unshare",
			unix.Unshare(unix.CLONE_NEWNET))
	}, func() (err error) {
		if s.ns, err = os.Open(current); err != nil {
			return err
		}
		if s.dev, err = openDevice(); err != nil {
			return err
		}
		return errors.Join(
			configure(device, unix.SIOCSIFADDR,
				func(r *unix.Ifreq) error { return r.SetInet4Addr(addr[:]) }),
			configure(device, unix.SIOCSIFNETMASK,
				func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }),
			up(device, true), up("lo", true))
	})
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends the use of the namespace. It exists until the last process in it has ended.
func (s *namespace) close() {
	for _, f := range []*os.File{s.dev, s.ns} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// inside calls a function whose sockets and processes are in the namespace. The function must not
// create sockets or processes in other goroutines.
func (s *namespace) inside(do func() error) error {
	return elsewhere(func() error { return unix.Setns(int(s.ns.Fd()), unix.CLONE_NEWNET) }, do)
}

// plug connects the interface to the switch or disconnects it, like a cable. The kernel returns no
// error to senders.
func (s *namespace) plug(in bool) error {
	carrier := 0
	if in {
		carrier = 1
	}
	c, err := s.dev.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		failed = unix.IoctlSetPointerInt(int(fd),
			unix.TUNSETCARRIER, carrier)
	})
	return errors.Join(err, failed)
}

// current is the network namespace of the calling thread.
const current = "/proc/thread-self/ns/net"

// elsewhere calls do on a thread whose namespace has been changed by leave, and changes it back.
// The thread does not end: the kernel kills the processes that it started when it ends.
func elsewhere(leave, do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open(current)
	if err != nil {
		return err
	}
	defer home.Close()
	if err := leave(); err != nil {
		return err
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("a thread remains in another network namespace: %v", err))
		}
	}()
	return do()
}

// openDevice creates the interface to the switch in the namespace of the calling thread. It exists
// until the file is closed.
func openDevice() (*os.File, error) {
	const tun = "/dev/net/tun"
	fd, err := unix.Open(tun, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tun, err)
	}
	r, err := unix.NewIfreq(device)
	if err == nil {
		r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", tun, err)
	}
	return os.NewFile(uintptr(fd), tun), nil
}

// configure changes an interface in the namespace of the calling thread.
func configure(name string, request uint, set func(*unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err == nil {
		err = set(r)
	}
	if err == nil {
		err = unix.IoctlIfreq(fd, request, r)
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// up enables or disables an interface. Without one the kernel returns errors to senders.
func up(name string, on bool) error {
	return configure(name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		if on {
			r.SetUint16(unix.IFF_UP)
		}
		return nil
	})
}
