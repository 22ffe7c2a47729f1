package node

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"vigil/test/proc"
)

func TestClient(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	if _, err := os.Stat("node_modules"); err != nil {
		t.Skip("the client is not installed: npm ci in this directory does that")
	}
	s := proc.Start(t, proc.Config{Memory: true})
	r := proc.Run(t, 2*time.Minute, proc.Spec{
		Name: node,
		Args: []string{"--test", "client.test.js"},
		Env:  []string{"ENDPOINT=http://" + s.Addr()},
	})
	if r.Code != 0 {
		t.Errorf("node: exit code %d", r.Code)
	}
	t.Logf("%s\n%s", r.Stdout, r.Stderr)
}
