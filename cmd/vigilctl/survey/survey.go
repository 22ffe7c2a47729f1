// Package survey asks all members of a cluster at once: their status, metrics, alarms and member
// list.
package survey

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/probe"
)

// Survey asks the members at --endpoints, or with --cluster all members.
type Survey struct {
	Env *cli.Env
	// Whole makes --cluster the default.
	Whole bool
	// Client and Members are set while Run runs.
	Client  *client.Client
	Members []*probe.Member
	// NoLogin is the reason why logging in is impossible, health.ErrNoLogin without a leader.
	// Members then answer only the questions that need no user.
	NoLogin error

	cluster bool
}

// AddFlags declares --cluster.
func (s *Survey) AddFlags(c *cobra.Command) {
	text := "look at all members: the others at the addresses that they advertise"
	if s.Whole {
		text += "; =false looks at --endpoints only"
	}
	c.Flags().BoolVar(&s.cluster, "cluster", s.Whole, text)
}

// Run connects, finds the members and calls f.
func (s *Survey) Run(c *cobra.Command, f func(ctx context.Context) error) error {
	return s.Env.RunAnyway(c, func(ctx context.Context, cl *client.Client, noLogin error) error {
		s.Client, s.NoLogin = cl, noLogin
		defer func() {
			for _, m := range s.Members {
				m.Close()
			}
			s.Members = nil // a command may run more than once
		}()
		if err := s.findMembers(ctx); err != nil {
			return err
		}
		return f(ctx)
	})
}

func (s *Survey) findMembers(ctx context.Context) error {
	secure, err := s.Env.Config.SecureHTTP()
	if err != nil {
		return exit.With(exit.BadConnection, err)
	}
	endpoints := slices.Clone(s.Env.Config.Endpoints)
	if s.cluster {
		if endpoints, err = s.addOthers(ctx, endpoints); err != nil {
			return err
		}
	}
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		s.Members = append(s.Members, probe.New(e, token, secure, s.Env.Timeout()))
	}
	return nil
}

// identifyTimeout is how long an endpoint may take to identify its member. A slower member is
// listed at the address that it advertises.
const identifyTimeout = time.Second

// addOthers returns one endpoint for each member: a given one that answers, or the member's
// advertised address, which this machine may not be able to reach. Given endpoints that do not
// answer and belong to no known member stay in the list. If no member answers, it returns the given
// endpoints when Whole is set or logging in is impossible, and otherwise an error.
func (s *Survey) addOthers(ctx context.Context, given []string) ([]string, error) {
	listing, cancel := context.WithTimeout(ctx, s.Env.Timeout())
	defer cancel()
	// Serializable: a member without a quorum also answers.
	list, err := s.Client.Cluster().MemberListSerializable(listing)
	if err != nil {
		if (s.Whole || s.NoLogin != nil) && ctx.Err() == nil {
			return given, nil // Read reports the error
		}
		return nil, err
	}
	ids := make([]uint64, len(given))
	identifying, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i, e := range given {
		wg.Go(func() {
			if at, err := s.Client.At(e); err == nil {
				if r, err := at.Maintenance().Status(identifying); err == nil {
					ids[i] = r.Header.MemberID
				}
			}
		})
	}
	wg.Wait()
	members := memberMessages(list.Members)
	var out []string
	for _, m := range members {
		if i := slices.Index(ids, m.ID); i >= 0 {
			out = append(out, given[i])
		} else if len(m.ClientURLs) > 0 {
			out = append(out, m.ClientURLs[0])
		}
	}
	for i, e := range given {
		if m := advertises(members, e); ids[i] == 0 && m == nil ||
			ids[i] != 0 && !slices.Contains(out, e) && !listed(members, ids[i]) {
			out = append(out, e)
		}
	}
	return out, nil
}

func listed(members []*etcdserverpb.Member, id uint64) bool {
	return slices.ContainsFunc(members, func(m *etcdserverpb.Member) bool { return m.ID == id })
}

// advertises returns the member that advertises an endpoint, nil if no member does.
func advertises(members []*etcdserverpb.Member, endpoint string) *etcdserverpb.Member {
	for _, m := range members {
		if slices.ContainsFunc(m.ClientURLs,
			func(u string) bool { return address(u) == address(endpoint) }) {
			return m
		}
	}
	return nil
}

// address returns an endpoint without its scheme.
func address(endpoint string) string {
	if _, rest, ok := strings.Cut(endpoint, "://"); ok {
		return strings.TrimSuffix(rest, "/")
	}
	return endpoint
}

// token returns the text that identifies the user to members over HTTP, empty without a user.
func (s *Survey) token(ctx context.Context) (string, error) {
	cfg := &s.Env.Config
	if s.Env.Token != "" || cfg.Username == "" || s.NoLogin != nil {
		return s.Env.Token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Env.Timeout())
	defer cancel()
	t, err := s.Client.Auth().Authenticate(ctx, cfg.Username, cfg.Password)
	return t.Value, err
}

// Each calls f for all members concurrently, within one time limit.
func (s *Survey) Each(ctx context.Context, f func(ctx context.Context, i int, m *probe.Member)) {
	ctx, cancel := context.WithTimeout(ctx, s.Env.Timeout())
	defer cancel()
	var wg sync.WaitGroup
	for i, m := range s.Members {
		wg.Go(func() { f(ctx, i, m) })
	}
	wg.Wait()
}

// status returns the status that a member reports.
func (s *Survey) status(ctx context.Context,
	m *probe.Member) (*etcdserverpb.StatusResponse, error) {
	at, err := s.Client.At(m.Endpoint)
	if err != nil {
		return nil, err
	}
	return Status(ctx, at)
}

// ErrorLine reduces an error to its first cause, on one line, with the flags that may help.
func ErrorLine(err error) string {
	var u *client.UnreachableError
	if errors.As(err, &u) && len(u.Errors) > 0 && u.Errors[0] != nil {
		err = cli.Advise(u.Errors[0])
	} else if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
