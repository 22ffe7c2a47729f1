package operate

import (
	"encoding/json"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestSlowRequests: a slow request is logged with its content and the time of its steps, and
// without values.
func TestSlowRequests(t *testing.T) {
	const secret = "hunter2hunter2"
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--warning-unary-request-duration=1ns", "--warning-apply-duration=1ns"}})
	c := s.Client()
	ctx := proc.Context(t)
	if _, err := c.Put(ctx, "the-key", secret); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "the-", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value("the-key"), "=", secret)).
		Then(clientv3.OpPut("the-key", secret+secret),
			clientv3.OpGet("the-key")).Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(ctx, "the-key", clientv3.WithPrevKV()); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	log := s.Log().String()
	if strings.Contains(log, "hunter2") {
		t.Error("a value is in the log")
	}
	type line struct {
		Msg, Request, Response, Prefix, Took, Steps string
		Method                                      string `json:"response type"`
		Content                                     string `json:"request content"`
		Spent                                       string `json:"time spent"`
		RequestCount                                int    `json:"request count"`
		RequestSize                                 int    `json:"request size"`
		ResponseCount                               int    `json:"response count"`
		ResponseSize                                int    `json:"response size"`
	}
	var stats, applies []line
	for text := range strings.Lines(log) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		switch l.Msg {
		case "request stats":
			stats = append(stats, l)
		case "apply request took too long":
			applies = append(applies, l)
		}
	}
	find := func(method string) line {
		t.Helper()
		for _, l := range stats {
			if l.Method == "/etcdserverpb.KV/"+method {
				return l
			}
		}
		t.Fatalf("no line about %s", method)
		return line{}
	}
	write := []string{"propose ", ", commit ", ", apply ", ", wait ", ", rest "}
	for method, want := range map[string]struct {
		line
		steps []string
	}{
		"Put": {line{Content: `key:"the-key" value_size:14`, RequestCount: 1,
			RequestSize: 25}, write},
		"Range": {line{Content: `key:"the-" range_end:"the."`, ResponseCount: 1},
			[]string{"agree ", ", read ", ", rest "}},
		"Txn": {line{Content: "request_put:<key:\"the-key\" value_size:28>",
			RequestCount: 2}, write},
		"DeleteRange": {line{Content: `key:"the-key" prev_kv:true`, ResponseCount: 1}, write},
	} {
		got := find(method)
		if !strings.Contains(got.Content, want.Content) || got.RequestCount != want.RequestCount ||
			got.ResponseCount != want.ResponseCount ||
			want.RequestSize != 0 && got.RequestSize != want.RequestSize || got.ResponseSize <= 0 ||
			got.Spent == "" {
			t.Errorf("%s: %+v, want %+v", method, got, want.line)
		}
		for _, step := range want.steps {
			if !strings.Contains(got.Steps, step) {
				t.Errorf("%s: steps %q lack %q", method, got.Steps, step)
			}
		}
	}
	found := map[string]bool{}
	for _, l := range applies {
		found[l.Prefix+l.Request] = true
	}
	for _, want := range []string{`key:"the-key" value_size:14`,
		`read-only range key:"the-" range_end:"the."`, `key:"the-key" prev_kv:true`} {
		if !found[want] {
			t.Errorf("no line about applying %s in %v", want, found)
		}
	}
}
