package badinput

import (
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// A wrongStart is a start that must fail. The one line about it says what failed, with the value,
// and what to do.
type wrongStart struct {
	name string
	// set makes what is wrong, and changes the configuration of a member in a directory that does
	// not exist yet.
	set func(t *testing.T, w *attempt)
	// code is the exit code: 2 for what a restart does not correct.
	code int
	what string // regular expression
	next string // likewise
}

// attempt is how a member is started.
type attempt struct {
	proc.Config
	dir    string // for files
	nobody bool   // as another user than root
	shell  string // commands of a shell before the start
	env    []string
	wait   time.Duration
}

// listen replaces the client URL.
func (a *attempt) listen(url string) {
	a.Args = append(a.Args, "--listen-client-urls="+url)
}

func (a *attempt) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secure makes the client port one with a certificate.
func (a *attempt) secure(cert, key string, more ...string) {
	a.listen(fmt.Sprintf("https://127.0.0.1:%d", a.ClientPort))
	a.Args = append(a.Args,
		fmt.Sprintf("--advertise-client-urls=https://127.0.0.1:%d", a.ClientPort),
		"--cert-file="+cert, "--key-file="+key)
	a.Args = append(a.Args, more...)
}

// taken returns a port that this process listens on.
func taken(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// dying returns a port of a member that dies while it answers: of the answer to each connection
// only the first bytes arrive.
func dying(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				question := make([]byte, 1<<10)
				if n, err := c.Read(question); err == nil {
					_, _ = c.Write(question[:min(n, 9)]) // both sides begin alike
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// mount mounts a file system in memory, which needs root.
func mount(t *testing.T, dir, options string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var flags uintptr
	if options == "ro" {
		flags, options = syscall.MS_RDONLY, ""
	}
	if err := syscall.Mount("none", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// keep takes the data directory of a member that has run.
func (a *attempt) keep(t *testing.T) string {
	t.Helper()
	c := written(t)
	a.DataDir, a.ClientPort, a.PeerPort = c.DataDir, c.ClientPort, c.PeerPort
	return c.DataDir
}

func (a *attempt) patch(t *testing.T, format int, change func(b []byte)) {
	t.Helper()
	f := formats[format]
	if patch(t, filepath.Join(a.keep(t), f.dir), f.magic, change) == 0 {
		t.Fatalf("no file begins with %s", f.magic)
	}
}

func keyText(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var self = regexp.QuoteMeta(fmt.Sprintf(", process %d)", os.Getpid()))

// wrongStarts are the failures of a start that do not follow from the command line alone:
// test/config/testdata/mistakes has those.
var wrongStarts = []wrongStart{
	// Addresses.
	{"client port in use", func(t *testing.T, a *attempt) { a.ClientPort = taken(t) }, 1,
		`listen on http://127\.0\.0\.1:\d+: the address is in use by another program \(.*` + self,
		`stop that, or choose another address for --listen-client-urls`},
	{"peer port in use", func(t *testing.T, a *attempt) { a.PeerPort = taken(t) }, 1,
		`in use by another program \(.*` + self, `another address for --listen-peer-urls`},
	{"metrics port in use", func(t *testing.T, a *attempt) {
		a.Args = []string{fmt.Sprintf("--listen-metrics-urls=http://127.0.0.1:%d", taken(t))}
	}, 1,
		`in use by another program \(.*` + self, `another address for --listen-metrics-urls`},
	{"address of another machine",
		func(t *testing.T, a *attempt) { a.listen("http://192.0.2.1:2379") }, 1,
		`http://192\.0\.2\.1:2379: no network interface of this machine has the address`,
		`choose one of this machine for --listen-client-urls, or 0\.0\.0\.0 for all`},
	{"host name", func(t *testing.T, a *attempt) { a.listen("http://member.example:2379") }, 2,
		`--listen-client-urls: "http://member\.example:2379"`,
		`must name an IP address or localhost to listen on`},
	{"IPv6 address with a zone",
		func(t *testing.T, a *attempt) { a.listen("http://[fe80::1%25eth0]:2379") }, 2,
		`--listen-client-urls: "http://\[fe80::1%25eth0\]:2379"`,
		`must name an IP address or localhost to listen on`},
	{"advertised port 0",
		func(t *testing.T, a *attempt) { a.Args = []string{"--initial-advertise-peer-urls=http://127.0.0.1:0"} }, 2,
		`--initial-advertise-peer-urls has http://127\.0\.0\.1:0`, `give both the same URL`},
	{"port below 1024", func(t *testing.T, a *attempt) {
		a.listen("http://127.0.0.1:81")
		a.nobody, a.shell = true,
			"[ $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start) -gt 81 ] || exit 77"
	}, 1, `http://127\.0\.0\.1:81: permission denied`, `needs the capability CAP_NET_BIND_SERVICE`},
	{"path of a socket too long",
		func(t *testing.T, a *attempt) { a.listen("unix:///tmp/" + strings.Repeat("x", 120)) }, 1,
		`the path of the socket has 125 bytes and the most is 107`,
		`choose a shorter one for --listen-client-urls`},
	{"no directory for a socket",
		func(t *testing.T, a *attempt) { a.listen("unix://" + a.dir + "/none/socket") }, 1,
		`there is no directory for the socket`,
		`create /.*/none, or choose another path for --listen-client-urls`},
	{"file in place of a socket",
		func(t *testing.T, a *attempt) { a.listen("unix://" + a.file(t, "file", "x")) }, 1,
		`the file exists and is not a socket`,
		`remove it, or choose another path for --listen-client-urls`},
	{"socket in use", func(t *testing.T, a *attempt) {
		l, err := net.Listen("unix", filepath.Join(a.dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		a.listen("unix://" + filepath.Join(a.dir, "s"))
	}, 1, `in use by another program \(.*` + self,
		`choose another address for --listen-client-urls`},

	// Directories.
	{"data directory is a file",
		func(t *testing.T, a *attempt) { a.DataDir = a.file(t, "file", "x") }, 1,
		`data directory /.*/file: .*not a directory`,
		`a part of the path is a file: correct the path`},
	{"data directory below a file",
		func(t *testing.T, a *attempt) { a.DataDir = a.file(t, "file", "x") + "/data" }, 1,
		`not a directory`, `a part of the path is a file: correct the path`},
	{"data directory cannot be made", func(t *testing.T, a *attempt) { a.DataDir = "/proc/x" }, 1,
		`data directory /proc/x: mkdir /proc/x`,
		`choose a directory in which directories can be made`},
	{"no permission", func(t *testing.T,
		a *attempt) {
		a.nobody = true
		a.DataDir = a.dir + "/data"
	}, 1,
		`data directory /.*: permission denied`,
		`let user .*65534.* use it \(chown, chmod\), or run vigil as the user that may`},
	{"read-only file system",
		func(t *testing.T, a *attempt) {
			mount(t, a.dir+"/ro", "ro")
			a.DataDir = a.dir +
				"/ro/data"
		}, 1,
		`mkdir /.*/ro/data: read-only file system`, `mount it writable .*, or choose another path`},
	{"immutable directory", func(t *testing.T, a *attempt) {
		a.DataDir = a.dir + "/fixed/data"
		if err := os.Mkdir(a.dir+"/fixed", 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("chattr", "+i", a.dir+"/fixed").CombinedOutput(); err != nil {
			t.Skipf("no file can be made immutable: %v %s", err, out)
		}
		t.Cleanup(func() { _ = exec.Command("chattr", "-i", a.dir+"/fixed").Run() })
	}, 1, `mkdir /.*/fixed/data: operation not permitted`,
		`may be immutable \(lsattr\), or a rule of the system forbids it: allow it, or choose another path$`},
	{"full file system",
		func(t *testing.T, a *attempt) {
			mount(t, a.dir+"/full", "size=8k")
			a.DataDir = a.dir +
				"/full/data"
		}, 1,
		`no space left on device`,
		`free space on the file system of /.*/full/data.* \(df and df -i show it\)`},
	{"directory of a running member", func(t *testing.T, a *attempt) {
		s := proc.Start(t, proc.Config{Program: proc.Vigil})
		a.DataDir = s.DataDir()
	}, 1, `data directory /.* is in use by another process \(vigil, process \d+\)`,
		`stop that, or give this member a --data-dir of its own`},
	{"directory of an etcd member",
		func(t *testing.T, a *attempt) { made(t, a.DataDir, "member/snap/db") }, 1,
		`holds the data of an etcd member \(member\)`,
		`choose another --data-dir, which vigilctl snapshot restore can fill`},
	{"directory in that of an etcd member",
		func(t *testing.T, a *attempt) { made(t, a.DataDir, "snap/db") }, 1,
		`holds the data of an etcd member \(snap/db\)`, `choose another --data-dir`},
	{"newer raft log", func(t *testing.T, a *attempt) {
		a.patch(t, 0, func(b []byte) {
			binary.LittleEndian.PutUint32(b[8:],
				7)
			formats[0].sign(b)
		})
	}, 1, `unknown format version: it is in version 7`,
		`run the version of vigil that wrote it, or a newer one`},
	{"newer history", func(t *testing.T, a *attempt) {
		a.patch(t, 1, func(b []byte) {
			binary.LittleEndian.PutUint32(b[8:],
				7)
			formats[1].sign(b)
		})
	}, 1, `unknown format version: .* is in version 7`,
		`run the version of vigil that wrote it, or a newer one`},
	{"damaged raft log",
		func(t *testing.T, a *attempt) { a.patch(t, 0, func(b []byte) { b[70] ^= 4 }) }, 1,
		`\.wal is corrupt at offset 0`,
		`see the damage with vigilctl check; if other members have the data, replace this one, otherwise restore a backup`},
	{"damaged history", func(t *testing.T,
		a *attempt) {
		a.patch(t, 1, func(b []byte) { b[20] ^= 4 })
	}, 1,
		`\.log at offset 0: corrupt data`,
		`see the damage with vigilctl check; if other members have the data, replace this one, otherwise restore a backup`},
	{"raft log of another member", func(t *testing.T, a *attempt) {
		mine, other := a.keep(t), written(t).DataDir
		if err := os.RemoveAll(filepath.Join(mine, "wal")); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(mine, "wal"),
			os.DirFS(filepath.Join(other, "wal"))); err != nil {
			t.Fatal(err)
		}
	}, 1, `store and raft log do not belong together`,
		`give this member the --data-dir and the --wal-dir that belong together`},
	{"no raft log", func(t *testing.T, a *attempt) { removed(t, a.keep(t), "wal") }, 1,
		`there is no raft log in /.*/wal`, `start the member with the --wal-dir that it had`},
	{"no store", func(t *testing.T, a *attempt) { removed(t, a.keep(t), "history") }, 1,
		`no store in /.*/history`, `start the member with the --data-dir that it had`},
	{"few file descriptors", func(t *testing.T, a *attempt) { a.shell = "ulimit -n 12" }, 1,
		`too many open files`, `ulimit -n, or LimitNOFILE=.*; it may have 12 files open`},
	{"memory cannot be locked", func(t *testing.T, a *attempt) {
		a.nobody, a.shell, a.Args = true, "ulimit -l 64", []string{"--memory-mlock"}
	}, 1,
		`--memory-mlock: lock memory`,
		`give the process the capability IPC_LOCK, or raise ulimit -l`},

	// Certificates and keys.
	{"key of another certificate", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("one.pem"), ca.File("two-key.pem"))
	}, 2, `one\.pem and /.*two-key\.pem: .*does not match`,
		`name the key for which this certificate was issued`},
	{"peer key of another certificate", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		url := fmt.Sprintf("https://127.0.0.1:%d", a.PeerPort)
		a.InitialCluster = "m1=" + url
		a.Args = []string{"--listen-peer-urls=" + url, "--initial-advertise-peer-urls=" + url,
			"--peer-cert-file=" + ca.File("one.pem"), "--peer-key-file=" + ca.File("two-key.pem")}
	}, 2, `certificates of peers: .*one\.pem and /.*two-key\.pem: .*does not match`,
		`name the key for which this certificate was issued`},
	{"no certificate", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("none.pem"), ca.File("one-key.pem"))
	}, 2, `open /.*none\.pem: no such file`, `create it, or correct the path`},
	{"no key", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("one.pem"), "none.key")
	}, 2, `open none\.key: no such file`, `create it, or correct the path, which begins in /`},
	{"certificate and key exchanged", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("one-key.pem"), ca.File("one.pem"))
	}, 2, `one-key\.pem and /.*one\.pem`, `exchange the two files`},
	{"certificate in DER", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		block, _ := pem.Decode(keyText(t, ca.File("one.pem")))
		a.secure(a.file(t, "one.der", string(block.Bytes)), ca.File("one-key.pem"))
	}, 2, `one\.der and /`,
		`is in DER: convert it \(openssl x509 -inform der -in /.*one\.der -out NEW\)`},
	{"key that is garbage", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("one.pem"), a.file(t, "garbage", "x"))
	}, 2, `one\.pem and /.*garbage`,
		`name a file with the private key in PEM instead of /.*garbage`},
	{"encrypted key", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		key := filepath.Join(a.dir, "encrypted-key.pem")
		if out, err := exec.Command("openssl", "pkcs8", "-topk8", "-passout", "pass:x", "-in",
			ca.File("one-key.pem"), "-out", key).CombinedOutput(); err != nil {
			t.Skipf("openssl: %v %s", err, out)
		}
		a.secure(ca.File("one.pem"), key)
	}, 2, `one\.pem and /.*encrypted-key\.pem`,
		`is encrypted, and no flag has its passphrase: write it without \(openssl pkey -in /.*encrypted-key\.pem -out NEW\)`},
	{"unreadable key", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.nobody = true
		a.secure(ca.File("one.pem"), ca.File("one-key.pem"))
	}, 2, `open /.*one-key\.pem: permission denied`, `let user .*65534.* use it`},
	{"authority without a certificate", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("one.pem"), ca.File("one-key.pem"),
			"--trusted-ca-file="+ca.File("one-key.pem"))
	}, 2, `one-key\.pem holds no certificate`, `name a file with the certificate in PEM`},
	{"revocation list that is none", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("one.pem"), ca.File("one-key.pem"),
			"--trusted-ca-file="+ca.File("authority.pem"),
			"--client-crl-file="+ca.File("one-key.pem"))
	}, 2, `one-key\.pem holds no list of revoked certificates`, `name a list in PEM or DER`},
	{"no key for tokens", func(t *testing.T, a *attempt) {
		a.Args = []string{"--auth-token=jwt,sign-method=RS256,priv-key=none.key"}
	}, 2,
		`--auth-token: jwt option priv-key: open none\.key: no such file`,
		`create it, or correct the path, which begins in /`},

	// The cluster.
	{"cluster without this member",
		func(t *testing.T, a *attempt) { a.InitialCluster = "m2=http://127.0.0.1:1" }, 2,
		`--initial-cluster: no member is named "m1" \(--name\) in "m2=`,
		`add this member as NAME=URL, or give it the --name that it has there`},
	{"another URL in the cluster",
		func(t *testing.T, a *attempt) { a.InitialCluster = "m1=http://127.0.0.1:1" }, 2,
		`--initial-cluster: has http://127\.0\.0\.1:1 for "m1", but --initial-advertise-peer-urls has http://127`, `give both the same URL`},
	{"one URL for two members", func(t *testing.T, a *attempt) {
		u := fmt.Sprintf("http://127.0.0.1:%d", a.PeerPort)
		a.InitialCluster = "m1=" + u + ",m2=" + u
	}, 2, `is listed twice, for "m1" and "m2"`, `each member needs a URL of its own`},
	{"name that is not known", func(t *testing.T, a *attempt) {
		a.InitialCluster = "m1=http://member.invalid:2380"
		a.wait = 2 * time.Minute
	}, 1,
		`has http://member\.invalid:2380 for "m1"`, `give both the same URL`},
	{"joining nobody", func(t *testing.T,
		a *attempt) {
		a.Args = []string{"--initial-cluster-state=existing"}
	}, 2,
		`--initial-cluster names no other member to join`,
		`list all members of the cluster there, this one included`},
	{"joining who does not answer", func(t *testing.T, a *attempt) {
		a.InitialCluster = fmt.Sprintf("m1=http://127.0.0.1:%d,m2=http://127.0.0.1:1", a.PeerPort)
		a.Args = []string{"--initial-cluster-state=existing"}
	}, 1, `cannot fetch cluster info from peer urls: .*127\.0\.0\.1:1: .*refused`,
		`start the other members, or correct their URLs in --initial-cluster`},
	{"joining a member that dies", func(t *testing.T, a *attempt) {
		a.InitialCluster = fmt.Sprintf("m1=http://127.0.0.1:%d,m2=http://127.0.0.1:%d",
			a.PeerPort, dying(t))
		a.Args = []string{"--initial-cluster-state=existing"}
	}, 1, `cannot fetch cluster info from peer urls: .*127\.0\.0\.1:\d+: `,
		`correct their URLs in --initial-cluster; for a new cluster leave out --initial-cluster-state=existing$`},
	{"joining a cluster that does not know it", func(t *testing.T, a *attempt) {
		s := proc.Start(t, proc.Config{Program: proc.Vigil})
		a.InitialCluster = fmt.Sprintf("m2=http://127.0.0.1:%d,m1=http://%s",
			a.PeerPort, s.PeerAddr())
		a.Name, a.Args = "m2", []string{"--initial-cluster-state=existing"}
	}, 1, `--initial-cluster does not match cluster [0-9a-f]+, whose members are`,
		`after vigilctl member add for a member that is not there`},
	{"discovery and joining", func(t *testing.T, a *attempt) {
		a.Discover, a.Args = true,
			[]string{"--discovery-endpoints=http://127.0.0.1:1", "--discovery-token=t",
				"--initial-cluster-state=existing"}
	}, 2, `discovery URL should not be set when joining existing initial cluster`,
		`leave out either --discovery-endpoints or --initial-cluster-state=existing`},
	{"discovery without records", func(t *testing.T, a *attempt) {
		a.Discover, a.Args, a.wait = true,
			[]string{"--discovery-srv=nothing.invalid"}, 2*time.Minute
	}, 1,
		`--discovery-srv=nothing\.invalid: error querying DNS SRV records`,
		`publish a record for each member`},
	{"discovery of no cluster", func(t *testing.T, a *attempt) {
		s := proc.Start(t, proc.Config{Program: proc.Vigil})
		a.Discover, a.Args = true,
			[]string{"--discovery-endpoints=http://" + s.Addr(), "--discovery-token=t"}
	}, 1, `discovery: size key not found`,
		`put the number of members at /_etcd/registry/TOKEN/_config/size`},
	{"discovery of a full cluster", func(t *testing.T, a *attempt) {
		s := proc.Start(t, proc.Config{Program: proc.Vigil})
		for k, v := range map[string]string{"_config/size": "1",
			"members/1": "x=http://127.0.0.1:1"} {
			if _, err := s.Client().Put(proc.Context(t), "/_etcd/registry/t/"+k, v); err != nil {
				t.Fatal(err)
			}
		}
		a.Discover, a.Args = true,
			[]string{"--discovery-endpoints=http://" + s.Addr(), "--discovery-token=t"}
	}, 1, `discovery: cluster is full`, `vigilctl member add`},

	// Configuration and log.
	{"no configuration file",
		func(t *testing.T, a *attempt) { a.Args = []string{"--config-file=none.yml"} }, 2,
		`--config-file: .*none\.yml: no such file`,
		`create it, or correct the path, which begins in /`},
	{"directory as configuration file",
		func(t *testing.T, a *attempt) { a.Args = []string{"--config-file=" + a.dir} }, 2,
		`is a directory`, `name a file in it`},
	{"unreadable configuration file", func(t *testing.T, a *attempt) {
		a.nobody, a.Args = true, []string{"--config-file=" + a.file(t, "c.yml", "")}
	}, 2, `c\.yml: permission denied`, `let user .*65534.* use it`},
	{"no directory for the log",
		func(t *testing.T, a *attempt) { a.Args = []string{"--log-outputs=none/log"} }, 2,
		`--log-outputs: .*none/log: no such file`,
		`create it, or correct the path, which begins in /`},
	{"directory as log",
		func(t *testing.T, a *attempt) { a.Args = []string{"--log-outputs=" + a.dir} }, 2,
		`is a directory`, `name a file in it`},
	{"log without permission",
		func(t *testing.T, a *attempt) {
			a.nobody, a.Args = true,
				[]string{"--log-outputs=" + a.dir + "/log"}
		}, 2, `/log: permission denied`, `let user .*65534.* use it`},
	{"configuration file on a disk that fails",
		func(t *testing.T, a *attempt) { a.Args = []string{"--config-file=/proc/self/mem"} }, 2,
		`--config-file: read /proc/self/mem: input/output error`,
		`error: the disk has failed: see the log of the kernel, and docs/operations/disks\.md \(see vigil --help\)$`},
	{"authority on a disk that fails", func(t *testing.T, a *attempt) {
		ca := authority(t, a)
		a.secure(ca.File("one.pem"), ca.File("one-key.pem"), "--trusted-ca-file=/proc/self/mem")
	}, 2, `read /proc/self/mem: input/output error`,
		`error: the disk has failed: see the log of the kernel, and docs/operations/disks\.md$`},
	{"log on a full file system", func(t *testing.T, a *attempt) {
		mount(t, a.dir+"/full", "nr_inodes=1")
		a.Args = []string{"--log-outputs=" + a.dir + "/full/log"}
	}, 2, `--log-outputs: .*open /.*/full/log: no space left on device`,
		`device: free space on the file system of /.*/full/log \(df and df -i show it\), or choose a larger one$`},
	{"socket in a directory of another user", func(t *testing.T, a *attempt) {
		l, err := net.Listen("unix", filepath.Join(a.dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		a.nobody = true
		a.listen("unix://" + filepath.Join(a.dir, "s"))
	}, 1, `listen on unix:///.*/s: permission denied`,
		`choose another path for --listen-client-urls, or run vigil as the user that owns the socket`},
	{"variable with a wrong value",
		func(t *testing.T, a *attempt) { a.env = []string{"ETCD_MAX_TXN_OPS=many"} }, 2,
		`ETCD_MAX_TXN_OPS="many"`, `want a whole number from`},
	{"archive on a host",
		func(t *testing.T, a *attempt) { a.Args = []string{"--archive=file://srv/archive"} }, 2,
		`--archive: "file://srv/archive"`, `a directory is file:///DIRECTORY with three slashes`},
	{"one directory for log and store",
		func(t *testing.T, a *attempt) { a.Args = []string{"--wal-dir=" + a.DataDir + "/history"} },
		1, `one directory for both the raft log and the store`, `choose another --wal-dir`},
	{"archive that is no URL",
		func(t *testing.T, a *attempt) { a.Args = []string{"--archive=bucket"} }, 2,
		`--archive: it is not a URL`, `such as file:///srv/archive`},
}

// copyProgram copies the program to a directory, from which every user may run it. Another process
// writes it: a child of this one that inherits a file open for writing makes the start of that file
// fail.
func copyProgram(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "vigil")
	if out, err := exec.Command("install", "-m", "755", proc.Path(t, proc.Vigil),
		program).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return program
}

// authority issues two certificates. Others may read all but the keys.
func authority(t *testing.T, a *attempt) *pki.Authority {
	t.Helper()
	ca := pki.In(t, a.dir)
	for _, name := range []string{"one", "two"} {
		ca.Issue(name, func(*x509.Certificate) {})
	}
	for _, name := range []string{"one.pem", "two.pem", "authority.pem"} {
		_ = os.Chmod(ca.File(name), 0o644)
	}
	return ca
}

// made makes an empty file.
func made(t *testing.T, dir, file string) {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func removed(t *testing.T, dir, part string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
		t.Fatal(err)
	}
}

// TestEveryFailureHasANextStep starts members that cannot run.
func TestEveryFailureHasANextStep(t *testing.T) {
	t.Parallel()
	for _, c := range wrongStarts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "vigil-wrong-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			a := &attempt{Config: config(t), dir: dir, wait: startTimeout}
			c.set(t, a)
			program := proc.Path(t, proc.Vigil)
			spec := proc.Spec{Env: a.env}
			if a.nobody {
				if os.Getuid() != 0 {
					t.Skip("needs root to be another user")
				}
				const nobody = 65534
				spec.User = &syscall.Credential{Uid: nobody, Gid: nobody}
				program = copyProgram(t, dir)
			}
			if spec.Name, spec.Args = program, a.CommandLine(); a.shell != "" {
				spec.Name, spec.Args = "/bin/sh",
					append([]string{"-c", a.shell + ` && exec "$0" "$@"`, program},
						a.CommandLine()...)
			}
			res := proc.Run(t, a.wait, spec)
			const skip = 77
			if res.Code == skip {
				t.Skip("this machine allows it")
			}
			if res.Code != c.code {
				t.Errorf("exit code %d, want %d", res.Code, c.code)
			}
			lines := slices.DeleteFunc(strings.Split(strings.TrimSuffix(res.Stderr, "\n"), "\n"),
				func(line string) bool { return strings.HasPrefix(line, "{") })
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "vigil: ") {
				t.Fatalf("want one line for people:\n%s", res.Stderr)
			}
			t.Log(lines[0])
			for _, want := range []string{c.what, c.next} {
				if !regexp.MustCompile(want).MatchString(lines[0]) {
					t.Errorf("no %q in %s", want, lines[0])
				}
			}
		})
	}
}

// TestExpiredCertificate: a member starts with an expired certificate, as an etcd member does, and
// says so.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	a := &attempt{Config: config(t), dir: t.TempDir()}
	ca := pki.In(t, a.dir)
	ca.Issue("old", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	})
	a.secure(ca.File("old.pem"), ca.File("old-key.pem"))
	p, err := proc.Launch(append([]string{proc.Path(t, proc.Vigil)}, a.CommandLine()...), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	for _, want := range []string{"a certificate has expired, so that the other side refuses the connection: replace its file, which is read again", "old.pem", "serving client traffic"} {
		select {
		case <-p.Log().Wait(want):
		case <-p.Exited():
			t.Fatalf("it does not run:\n%s", p.Log().Tail(10))
		case <-time.After(startTimeout):
			t.Fatalf("no line %q:\n%s", want, p.Log().Tail(10))
		}
	}
}
