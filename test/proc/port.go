package proc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports of servers are below the range that the kernel takes for outgoing connections. They are
// divided into blocks, and each test process has a block of its own: a server that is down for a
// moment finds its port free, whatever other test processes run.
const (
	firstPort = 12000
	blockSize = 400
	blocks    = 50
)

// ports are the ports of this process.
var ports struct {
	sync.Mutex
	// claim listens on the first port of the block until the process ends, which keeps others out.
	claim net.Listener
	block int // the first port
	last  int // the port that was returned last
}

// FreePort returns a loopback port that nothing listens on, and that no other test process uses.
func FreePort(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for n, start := 0, rand.IntN(blocks); ports.claim == nil; n++ {
		if n == blocks {
			t.Fatalf("%d test processes have taken all ports", blocks)
		}
		ports.block = firstPort + (start+n)%blocks*blockSize
		ports.last = ports.block
		ports.claim, _ = listen(ports.block) // taken if it fails
	}
	for range blockSize {
		if ports.last++; ports.last == ports.block+blockSize {
			ports.last = ports.block + 1
		}
		if l, err := listen(ports.last); err == nil {
			_ = l.Close()
			return ports.last
		}
	}
	t.Fatal("no free port")
	return 0
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
