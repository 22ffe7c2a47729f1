package diff

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// setting reads a number from the environment.
func setting(t testing.TB, name string, def uint64) uint64 {
	s := os.Getenv(name)
	if s == "" && testing.Short() {
		return def / 3
	}
	if s == "" {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestGenerated runs a random list of calls: VIGIL_DIFF_CALLS of them, from VIGIL_SEED. At the
// first difference the list so far is cut down to what is needed to see it, and saved. Twice in
// between both servers are killed and go on from what they have on disk.
func TestGenerated(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	generated(t, p, narrow(seed(t), 0, p.Rev), int(setting(t, "VIGIL_DIFF_CALLS", 10000)))
}

// TestGeneratedWide is the same over a thousand keys, with fewer calls.
func TestGeneratedWide(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	generated(t, p, wide(seed(t), 2, p.Rev, 1000), int(setting(t, "VIGIL_DIFF_CALLS", 10000)/2))
}

func seed(t testing.TB) uint64 {
	s := setting(t, "VIGIL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("seed %d", s)
	return s
}

func generated(t *testing.T, p *Pair, g *generator, calls int) {
	var script []Call
	for i := range calls {
		if i == calls/3 || i == calls*2/3 {
			p.Restart()
		}
		c := NewCall(g.next())
		script = append(script, c)
		o, found := p.call(c)
		g.saw(c.Req, o, p.Rev)
		if len(found) > 0 && p.etcdDied(o) {
			t.Logf("call %d ended the stock etcd", i)
			break
		}
		if len(found) == 0 && (i%50 == 49 || i == calls-1) {
			found = p.Sweep()
		}
		if len(found) > 0 {
			p.Close()
			t.Errorf("call %d differs", i)
			p.Finish(t, &tally)
			if replay(t, script) == 0 {
				t.Logf("without the restarts the %d calls show no difference; saved as %s",
					len(script), save(t, script))
				return
			}
			minimal := minimise(t, script, time.Now().Add(60*time.Second))
			t.Logf("%d calls suffice, saved as %s", len(minimal), save(t, minimal))
			return
		}
	}
	p.Finish(t, &tally)
}

// TestGeneratedWire breaks the encodings of random requests in random places. What still decodes
// must be understood alike, what does not must be refused alike.
func TestGeneratedWire(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	g := narrow(seed(t), 3, p.Rev)
	calls := int(setting(t, "VIGIL_DIFF_CALLS", 10000) / 2)
	refused := 0
	for i := range calls {
		req := g.next()
		b, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		for range g.rng.IntN(3) {
			b = g.mutate(b)
		}
		o, found := p.call(Call{Method: NewCall(req).Method, Raw: b})
		g.rev = max(g.rev, p.Rev)
		if o.Status.Code() == codes.Internal {
			refused++
		}
		if len(found) > 0 && p.etcdDied(o) {
			t.Logf("call %d ended the stock etcd", i)
			return
		}
		if len(found) > 0 {
			t.Errorf("call %d differs", i)
			break
		}
	}
	p.Sweep()
	t.Logf("%d of %d calls could not be decoded", refused, calls)
	p.Finish(t, &tally)
}

// mutate changes an encoding a little. It returns a new slice.
func (g *generator) mutate(b []byte) []byte {
	b = append([]byte{}, b...)
	if len(b) == 0 {
		return []byte{byte(g.rng.Uint32())}
	}
	at := g.rng.IntN(len(b))
	switch g.rng.IntN(6) {
	case 0:
		b[at] ^= 1 << g.rng.IntN(8)
	case 1:
		b[at] = byte(g.rng.Uint32())
	case 2:
		return b[:at]
	case 3:
		return append(b[:at], b[at+1:]...)
	case 4:
		end := at + g.rng.IntN(len(b)-at+1)
		return append(b[:end], append(append([]byte{}, b[at:end]...), b[end:]...)...)
	case 5:
		return append(b[:at], append([]byte{byte(g.rng.Uint32())}, b[at:]...)...)
	}
	return b
}

// replay runs a script on a new pair of servers and returns the number of calls up to the first
// difference, 0 if there is none.
func replay(t testing.TB, script []Call) int {
	p := NewPair(t)
	defer p.Close()
	for i, c := range script {
		if _, found := p.call(c); len(found) > 0 {
			return i + 1
		}
	}
	if len(p.Sweep()) > 0 {
		return len(script)
	}
	return 0
}

// minimise leaves calls out while what is left still shows a difference, until the deadline.
func minimise(t testing.TB, script []Call, deadline time.Time) []Call {
	for chunk := len(script) / 2; chunk > 0; {
		before := len(script)
		for at := 0; at < len(script) && time.Now().Before(deadline); {
			try := append(append([]Call{}, script[:at]...), script[min(at+chunk, len(script)):]...)
			if n := replay(t, try); n > 0 {
				script = try[:n]
			} else {
				at += chunk
			}
		}
		if time.Now().After(deadline) {
			break
		}
		if chunk > 1 {
			chunk /= 2
		} else if len(script) == before {
			break
		}
	}
	return script
}

func save(t testing.TB, script []Call) string {
	dir := os.Getenv("VIGIL_SCRIPTS")
	if dir == "" {
		dir = os.TempDir()
	}
	name := filepath.Join(dir, "vigil-diff-"+strconv.FormatInt(time.Now().UnixNano(), 36)+".txt")
	var b bytes.Buffer
	if err := WriteScript(&b, script); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if b.Len() < 8<<10 {
		t.Logf("script:\n%s", b.Bytes())
	}
	return name
}

// TestScripts replays the scripts in testdata, or the one that VIGIL_SCRIPT names.
func TestScripts(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if s := os.Getenv("VIGIL_SCRIPT"); s != "" {
		names = []string{s}
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			script, err := ReadScript(f)
			if err != nil {
				t.Fatal(err)
			}
			p := NewPair(t)
			for _, c := range script {
				p.Call(c)
			}
			p.Sweep()
			p.Finish(t, &tally)
		})
	}
}

// TestScriptText checks that what is saved can be read back.
func TestScriptText(t *testing.T) {
	g := narrow(1, 2, 50)
	g.compacted = 10
	var script []Call
	for range 500 {
		script = append(script, NewCall(g.next()))
	}
	script = append(script, Call{Method: "etcdserverpb.KV/Put", Raw: []byte{0, 255}})
	var first, second bytes.Buffer
	if err := WriteScript(&first, script); err != nil {
		t.Fatal(err)
	}
	again, err := ReadScript(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteScript(&second, again); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Fatal("a script that was written and read is another one")
	}
}
