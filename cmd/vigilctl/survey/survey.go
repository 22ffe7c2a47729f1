// Package survey asks all members of a cluster at once: their status, metrics, alarms and member list.
package survey

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

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
	// Client and Members are set while Run runs.
	Client  *client.Client
	Members []*probe.Member

	cluster bool
}

// AddFlags declares --cluster.
func (s *Survey) AddFlags(c *cobra.Command) {
	c.Flags().BoolVar(&s.cluster, "cluster", false, "look at all members, at the addresses that they advertise")
}

// Run connects, finds the members and calls f.
func (s *Survey) Run(c *cobra.Command, f func(ctx context.Context) error) error {
	return s.Env.RunLong(c, func(ctx context.Context, cl *client.Client) error {
		s.Client = cl
		defer func() {
			for _, m := range s.Members {
				m.Close()
			}
		}()
		if err := s.findMembers(ctx); err != nil {
			return err
		}
		return f(ctx)
	})
}

func (s *Survey) findMembers(ctx context.Context) error {
	endpoints := slices.Clone(s.Env.Config.Endpoints)
	if s.cluster {
		ctx, cancel := context.WithTimeout(ctx, s.Env.Timeout())
		defer cancel()
		r, err := s.Client.MemberList(ctx)
		if err != nil {
			return err
		}
		endpoints = nil
		for _, m := range r.Members {
			if len(m.ClientURLs) > 0 {
				endpoints = append(endpoints, m.ClientURLs[0])
			}
		}
	}
	secure, err := s.Env.Config.SecureHTTP()
	if err != nil {
		return exit.With(exit.BadConnection, err)
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

// token returns what identifies the user to members over HTTP, empty if there is no user.
func (s *Survey) token(ctx context.Context) (string, error) {
	cfg := &s.Env.Config
	if s.Env.Token != "" || cfg.Username == "" {
		return s.Env.Token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Env.Timeout())
	defer cancel()
	r, err := s.Client.Authenticate(ctx, cfg.Username, cfg.Password)
	if err != nil {
		return "", err
	}
	return r.Token, nil
}

// Each calls f for all members concurrently, and limits the time of all.
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
func (s *Survey) status(ctx context.Context, m *probe.Member) (*etcdserverpb.StatusResponse, error) {
	at, err := s.Client.At(m.Endpoint)
	if err != nil {
		return nil, err
	}
	return at.Status(ctx)
}

// ErrorLine returns an error on one line, reduced to the first cause.
func ErrorLine(err error) string {
	var u *client.UnreachableError
	if errors.As(err, &u) && len(u.Errors) > 0 && u.Errors[0] != nil {
		err = u.Errors[0]
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
