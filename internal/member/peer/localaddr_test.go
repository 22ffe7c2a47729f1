package peer

import (
	"net"
	"strings"
	"testing"
)

// TestLocalAddr: connections to other members come from the address that was configured.
func TestLocalAddr(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(from)
			return
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		from <- host
		c.Close()
	}()
	c := Client{LocalAddr: "127.0.0.2"}
	if _, err := c.Call(t.Context(), "http://"+l.Addr().String(), 255, nil); err == nil {
		t.Error("an answer of a listener that closes")
	}
	if got := <-from; got != "127.0.0.2" {
		t.Errorf("the connection comes from %s", got)
	}
	o := Options{ClusterID: 1, MemberID: 1, LocalAddr: "host"}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "LocalAddr") {
		t.Error(err)
	}
}
