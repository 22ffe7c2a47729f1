package bucket

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// programName is the name of the program.
	programName = "vigil-bucket"
	socketName  = "socket"
	// DirPrefix is the prefix of the name of the socket's private directory.
	DirPrefix = programName + "-"
	// Ready is the first line that the program prints when it serves.
	Ready = "ready"
	// Trailer is the HTTP trailer in which the program names the error that has ended an object
	// before its end.
	Trailer = "Vigil-Error"
	// startTimeout limits the time until that line.
	startTimeout = 30 * time.Second
	// callTimeout limits a call, and the time without any byte of an object that is read. A Put has
	// more time, by SlowestRate: the program takes the object at once, and answers when the storage
	// has it.
	callTimeout = 2 * time.Minute
	// minPause and maxPause limit the time between two starts of a program that ends by itself.
	minPause, maxPause = time.Second, 30 * time.Second
	// maxError is the maximum length of an error's text, maxList of an answer to a list.
	maxError, maxList = 1 << 10, 64 << 20
)

// SlowestRate is the slowest expected rate of a Put in bytes per second: a time limit of a Put
// includes the time of the object at this rate.
const SlowestRate = 64 << 10

// Statuses are the HTTP statuses that the program answers for the errors of this package.
var Statuses = []struct {
	Err    error
	Status int
}{{ErrExists, http.StatusConflict}, {ErrNotFound, http.StatusNotFound},
	{ErrDenied, http.StatusForbidden}, {ErrLocked, http.StatusLocked},
	{ErrKey, http.StatusBadRequest}}

// program is a Bucket that a child process serves on a socket in a private directory. The first
// call starts the process; a call after its end starts it again.
type program struct {
	path    string
	address string
	log     *slog.Logger

	mu struct {
		sync.Mutex
		closed bool
		child  *child
		// err is the reason why the last start failed or the last process ended. The next start is
		// not before notBefore.
		err       error
		notBefore time.Time
		pause     time.Duration
	}
	// starting is held during the start of a process.
	starting chan struct{}
}

// child is a running process.
type child struct {
	cmd    *exec.Cmd
	dir    string
	stdin  io.Closer
	client *http.Client
	stderr *lastLine
	ended  chan struct{} // closed when the process has ended
}

// openProgram opens a bucket through the program vigil-bucket.
func openProgram(_ context.Context, u *url.URL, o *Options) (Bucket, error) {
	path, err := findProgram(o.Program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Show(u.String()), err)
	}
	p := &program{path: path, address: u.String(), log: o.Logger, starting: make(chan struct{}, 1)}
	return p, nil
}

// findProgram returns the path of the program: the given one, the one next to this executable, or
// the one in PATH.
func findProgram(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if own, err := os.Executable(); err == nil {
		next := filepath.Join(filepath.Dir(own), programName)
		if st, err := os.Stat(next); err == nil && st.Mode().IsRegular() {
			return next, nil
		}
	}
	path, err := exec.LookPath(programName)
	if err != nil {
		return "", fmt.Errorf("%w: the program %s is needed for it, and is neither next to this "+
			"program nor in PATH", ErrUnavailable, programName)
	}
	return path, nil
}

// running returns the process, and starts it if there is none.
func (p *program) running(ctx context.Context) (*child, error) {
	select {
	case p.starting <- struct{}{}:
		defer func() { <-p.starting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	c, closed, err, wait := p.mu.child, p.mu.closed, p.mu.err, time.Until(p.mu.notBefore)
	p.mu.Unlock()
	switch {
	case closed:
		return nil, fmt.Errorf("%w: it is closed", ErrUnavailable)
	case c != nil:
		return c, nil
	case wait > 0:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c, err = p.start(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			p.failedLocked(err)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if p.mu.closed {
		c.end()
		return nil, fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	p.mu.child = c
	go p.watch(c, time.Now())
	return c, nil
}

// failedLocked records why there is no process, and when the next one may start.
func (p *program) failedLocked(err error) {
	p.mu.err = err
	p.mu.pause = min(max(2*p.mu.pause, minPause), maxPause)
	p.mu.notBefore = time.Now().Add(p.mu.pause)
}

// watch waits for the end of a process.
func (p *program) watch(c *child, began time.Time) {
	<-c.ended
	_ = os.RemoveAll(c.dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.child != c {
		return
	}
	p.mu.child = nil
	if p.mu.closed {
		return
	}
	if time.Since(began) > maxPause {
		p.mu.pause = 0
	}
	p.failedLocked(fmt.Errorf("%s has ended: %s", programName,
		cmp.Or(c.stderr.String(), c.cmd.ProcessState.String())))
	p.log.Warn("the program for the archive's bucket has ended; the next call starts it again",
		slog.String("program", p.path), slog.Any("error", p.mu.err))
}

// leftAge is the age from which a directory without a listening process counts as left over: a
// process begins to listen within startTimeout.
const leftAge = 2 * startTimeout

// sweep removes the directories of processes that were killed together with their parent.
// Directories of other users, which it cannot remove, stay.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), DirPrefix+"*"))
	for _, dir := range dirs {
		st, err := os.Lstat(dir)
		if err != nil || !st.IsDir() || time.Since(st.ModTime()) < leftAge {
			continue
		}
		socket := filepath.Join(dir, socketName)
		c, err := net.DialTimeout("unix", socket, time.Second)
		switch {
		case err == nil:
			_ = c.Close()
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			_ = os.Remove(socket)
			_ = os.Remove(dir) // if there is nothing else in it
		}
	}
}

// start starts a process and waits until it serves.
func (p *program) start(ctx context.Context) (_ *child, err error) {
	sweep()
	dir, err := os.MkdirTemp("", DirPrefix)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, socketName)
	c := &child{cmd: exec.Command(p.path, "--socket", socket), dir: dir, stderr: &lastLine{},
		ended: make(chan struct{})}
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = time.Second
	stdin, err1 := c.cmd.StdinPipe()
	stdout, err2 := c.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, c.cmd.Start()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.stdin = stdin
	first := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReaderSize(io.LimitReader(stdout, maxError), maxError).ReadString('\n')
		first <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, stdout)
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	// The URL is not an argument: those are visible to every user of the machine.
	_, writeErr := io.WriteString(stdin, p.address+"\n")
	limit := time.NewTimer(startTimeout)
	defer limit.Stop()
	select {
	case line := <-first:
		if line == Ready && writeErr == nil {
			c.client = newClient(func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			})
			return c, nil
		}
		err = fmt.Errorf("%s: %s", programName, cmp.Or(line, c.stderr.String(), "it has ended"))
	case <-limit.C:
		err = fmt.Errorf("%s does not answer after %v", programName, startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.end()
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// newClient returns a client whose calls limit their time themselves.
func newClient(dial func(ctx context.Context, network, address string) (net.Conn,
	error)) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32,
		DisableCompression: true}}
}

// end ends a process: by the end of its input, and by a signal if that does not suffice.
func (c *child) end() {
	_ = c.stdin.Close()
	limit := time.NewTimer(5 * time.Second)
	defer limit.Stop()
	select {
	case <-c.ended:
	case <-limit.C:
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// Close implements Bucket.
func (p *program) Close() error {
	p.mu.Lock()
	c := p.mu.child
	p.mu.closed, p.mu.child = true, nil
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	c.end()
	return os.RemoveAll(c.dir)
}

// call makes a call. The caller closes the body of the answer, which ends the call.
func (p *program) call(ctx context.Context, method, path string, query url.Values,
	body []byte) (*answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := p.running(ctx)
	if err != nil {
		return nil, fmt.Errorf("bucket: %s %s: %w", strings.ToLower(method), path, err)
	}
	inner, cancel := context.WithCancelCause(ctx)
	limit := callTimeout + time.Duration(len(body))*time.Second/SlowestRate
	late := time.AfterFunc(limit,
		func() { cancel(fmt.Errorf("%w: no answer after %v", ErrUnavailable, limit)) })
	a := &answer{cancel: cancel, late: late, ctx: inner}
	u := url.URL{Scheme: "http", Host: "bucket", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(inner, method, u.String(), bytes.NewReader(body))
	if err != nil {
		_ = a.Close()
		return nil, err
	}
	res, err := c.client.Do(req)
	if err != nil {
		cause := context.Cause(inner)
		_ = a.Close()
		return nil, fmt.Errorf("bucket: %s %s: %w", strings.ToLower(method), path,
			cmp.Or(cause, error(unavailable{err})))
	}
	a.res = res
	if res.StatusCode/100 == 2 {
		return a, nil
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxError))
	_ = a.Close()
	kind := ErrUnavailable
	for _, k := range Statuses {
		if k.Status == res.StatusCode {
			kind = k.Err
		}
	}
	// The program's text may begin with the text of the kind.
	rest := strings.TrimPrefix(strings.TrimSpace(string(text)), kind.Error()+": ")
	return nil, fmt.Errorf("bucket: %s %s: %w: %s", strings.ToLower(method), path, kind, rest)
}

// unavailable is an error of the connection to the program.
type unavailable struct{ error }

func (unavailable) Is(target error) bool { return target == ErrUnavailable }

// answer is the answer to a call. Its time is limited again with each byte that arrives.
type answer struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	late   *time.Timer
	res    *http.Response
}

func (a *answer) Read(b []byte) (int, error) {
	n, err := a.res.Body.Read(b)
	if n > 0 {
		a.late.Reset(callTimeout)
	}
	switch text := a.res.Trailer.Get(Trailer); {
	case err == io.EOF && text != "":
		err = fmt.Errorf("bucket: %w: %s", ErrUnavailable, text[:min(len(text), maxError)])
	case err != nil && err != io.EOF:
		err = fmt.Errorf("bucket: %w", cmp.Or(context.Cause(a.ctx), error(unavailable{err})))
	}
	return n, err
}

func (a *answer) Close() error {
	a.late.Stop()
	a.cancel(context.Canceled)
	if a.res == nil {
		return nil
	}
	return a.res.Body.Close()
}

// Put implements Bucket.
func (p *program) Put(ctx context.Context, key string, data []byte) error {
	if err := checkPut(ctx, key, len(data)); err != nil {
		return err
	}
	return p.simple(ctx, http.MethodPut, key, data)
}

// Delete implements Bucket.
func (p *program) Delete(ctx context.Context, key string) error {
	if err := checkKey(ctx, key); err != nil {
		return err
	}
	return p.simple(ctx, http.MethodDelete, key, nil)
}

func (p *program) simple(ctx context.Context, method, key string, body []byte) error {
	a, err := p.call(ctx, method, "/object/"+key, nil, body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(a, maxError))
	return errors.Join(err, a.Close())
}

// Get implements Bucket.
func (p *program) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := checkKey(ctx, key); err != nil {
		return nil, err
	}
	a, err := p.call(ctx, http.MethodGet, "/object/"+key,
		url.Values{"offset": {strconv.FormatInt(offset, 10)}}, nil)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// List implements Bucket.
func (p *program) List(ctx context.Context, prefix, after string, limit int) ([]Object, error) {
	limit = min(max(limit, 1), ListLimit)
	a, err := p.call(ctx, http.MethodGet, "/list",
		url.Values{"prefix": {prefix}, "after": {after}, "limit": {strconv.Itoa(limit)}}, nil)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, err := io.ReadAll(io.LimitReader(a, maxList))
	if err != nil {
		return nil, err
	}
	var out []Object
	if err := json.Unmarshal(b, &out); err != nil || len(out) > limit {
		return nil, fmt.Errorf("bucket: list %s: %w: %s has answered %d bytes and %d objects (%v)",
			prefix, ErrUnavailable, programName, len(b), len(out), err)
	}
	return out, nil
}

// lastLine keeps the last line that is written to it, up to a length.
type lastLine struct {
	mu   sync.Mutex
	line []byte
}

func (l *lastLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		if text := bytes.TrimSpace(line); len(text) > 0 {
			l.line = append(l.line[:0], text[:min(len(text), maxError/2)]...)
		}
	}
	return len(b), nil
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(string(l.line), "")
}
