// Package cli has everything that commands which talk to a cluster share: the standard streams, the
// global flags, and how to connect, call and print. Each global flag can also be an environment
// variable.
package cli

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vigil/client"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

// Env is one run of the program: its streams, and the values of the global flags.
type Env struct {
	Stdin  io.Reader
	Stdout *Output
	Stderr io.Writer

	Endpoints      []string
	CommandTimeout time.Duration
	// Format is the value of --write-out; Printer checks it.
	Format string
	// Token is the value of --auth-jwt-token.
	Token string
	// Config is complete after Open or Connect.
	Config client.Config

	hex, debug               bool
	keepAlive, keepAliveWait time.Duration
	insecure, insecureSRV    bool
	user, password           string
	srvDomain, srvName       string
	configured               bool // Config is complete
	// given maps the flags that the environment set to their variables.
	given map[string]string
}

// RawStderr is the standard error to pass to other programs.
func (e *Env) RawStderr() io.Writer { return screen.Unguarded(e.Stderr) }

// AddFlags declares the global flags. They are the same as etcdctl's.
func (e *Env) AddFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&e.Endpoints, "endpoints", []string{"127.0.0.1:2379"},
		"the members to talk to, `HOST:PORT,...` or URLs")
	flags.StringVarP(&e.Format, "write-out", "w", string(show.Simple),
		"how to print: `FORMAT` "+strings.Join(show.Formats, ", "))
	flags.BoolVar(&e.hex, "hex", false, "print keys and values in hexadecimal")
	flags.BoolVar(&e.Stdout.plain, "no-color", false,
		"no colors on a terminal, as with NO_COLOR in the environment")
	flags.BoolVar(&e.debug, "debug", false, "log to stderr what happens to connections")
	flags.DurationVar(&e.Config.DialTimeout, "dial-timeout", 2*time.Second,
		"limit for connecting to a member")
	flags.DurationVar(&e.CommandTimeout, "command-timeout", 5*time.Second,
		"limit for a short command, added to --dial-timeout")
	flags.DurationVar(&e.keepAlive, "keepalive-time", 2*time.Second,
		"idle time after which a member is pinged; less than 10s is 10s")
	flags.DurationVar(&e.keepAliveWait, "keepalive-timeout", 6*time.Second,
		"limit for the answer to a ping")
	flags.IntVar(&e.Config.MaxSendBytes, "max-request-bytes", 0,
		"the largest request in `BYTES`; 0 is 2 MiB")
	flags.IntVar(&e.Config.MaxReceiveBytes, "max-recv-bytes", 0,
		"the largest answer in `BYTES`; 0 is 2 GiB")
	flags.BoolVar(&e.insecure, "insecure-transport", true,
		"connect without TLS, unless a URL or certificate requires it")
	flags.BoolVar(&e.insecureSRV, "insecure-discovery", true,
		"accept SRV records of members without TLS")
	flags.BoolVar(&e.Config.TLSFiles.InsecureSkipVerify, "insecure-skip-tls-verify", false,
		"accept any certificate of a member, for tests")
	flags.StringVar(&e.Config.TLSFiles.Cert, "cert", "", "identify with this certificate `FILE`")
	flags.StringVar(&e.Config.TLSFiles.Key, "key", "", "the `FILE` with the key of --cert")
	flags.StringVar(&e.Config.TLSFiles.CA, "cacert", "",
		"verify members' certificates with this `FILE` of authorities")
	flags.StringVar(&e.Token, "auth-jwt-token", "", "the `TOKEN` to use instead of --user")
	flags.StringVar(&e.user, "user", "",
		"the user, `NAME[:PASSWORD]`; without a password the command asks for it")
	flags.StringVar(&e.password, "password", "", "the password of --user")
	flags.StringVarP(&e.srvDomain, "discovery-srv", "d", "",
		"find the members by the SRV records of this `DOMAIN`")
	flags.StringVar(&e.srvName, "discovery-srv-name", "",
		"the suffix of the records' service `NAME`")
}
