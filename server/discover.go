package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"vigil/internal/health"
	"vigil/internal/member/discovery"
	"vigil/internal/state/cluster"
)

func (c *Config) validateDiscovery() error {
	ways := 0
	for _, used := range []bool{c.InitialCluster != "", c.Discovery.SRV != "",
		c.Discovery.Registry()} {
		if used {
			ways++
		}
	}
	if ways > 1 {
		return errors.New(`multiple discovery or bootstrap flags are set. Choose one of "initial-cluster", "discovery-endpoints" or "discovery-srv"`)
	}
	return c.Discovery.Validate()
}

// findMembers returns the members of the cluster to which a member without data belongs, from the
// configuration or from discovery. before is false if this member cannot have been started as one
// of them.
func (m *Member) findMembers(ctx context.Context) (members []cluster.Member,
	before bool, err error) {
	c := &m.cfg
	before = true
	switch {
	case c.Discovery.Registry() && c.InitialClusterState == "existing":
		return nil, false, configError(errors.New("discovery URL should not be set when joining " +
			"existing initial cluster: leave out either --discovery-endpoints or " +
			"--initial-cluster-state=existing"))
	case c.Discovery.Registry():
		m.startup.await(health.ForMembers,
			"all members to register at "+clipped(strings.Join(c.Discovery.Endpoints, ",")))
		if members, before, err = m.register(ctx); err != nil {
			return nil, false, err
		}
	case c.Discovery.SRV != "":
		m.startup.await(health.ForMembers, "the SRV records of "+clipped(c.Discovery.SRV))
		if c.InitialCluster,
			err = discovery.Lookup(ctx, m.discovery(), c.Name,
			c.InitialAdvertisePeerURLs); err != nil {
			return nil, false, fmt.Errorf("error setting up initial cluster: --discovery-srv=%s: "+
				"%w: publish a record for each member, with the address and port of its "+
				"--initial-advertise-peer-urls, or correct the domain", c.Discovery.SRV, err)
		}
		if members, err = c.initialMembers(); err != nil {
			return nil, false, fmt.Errorf("error setting up initial cluster: --discovery-srv=%s "+
				"has %s: %w", c.Discovery.SRV, c.InitialCluster, err)
		}
	default:
		if members, err = c.initialMembers(); err != nil {
			return nil, false, fmt.Errorf("--initial-cluster: %w", err)
		}
	}
	m.startup.await(health.ForMembers, "the names in the peer URLs of "+clipped(c.Name)+
		" to be resolved")
	return members, before, c.checkOwn(ctx, members)
}

func (m *Member) discovery() discovery.Config {
	d := m.cfg.Discovery
	d.Logger = m.log
	return d
}

// register registers this member in the registry and returns the members found there.
func (m *Member) register(ctx context.Context) (members []cluster.Member, before bool, err error) {
	c := &m.cfg
	m.log.Info("Bootstrapping cluster using v3 discovery.")
	urls := slices.Sorted(slices.Values(c.InitialAdvertisePeerURLs))
	var self []string
	for _, u := range urls {
		self = append(self, c.Name+"="+u)
	}
	c.InitialCluster, before,
		err = discovery.Join(ctx, m.discovery(), cluster.MemberID(urls, c.InitialClusterToken, 0),
		strings.Join(self, ","))
	if err != nil {
		return nil, false, fmt.Errorf("failed to join discovery cluster (%w)", err)
	}
	if members, err = c.initialMembers(); err != nil {
		return nil, false, fmt.Errorf("discovery cluster %s: %w", c.InitialCluster, err)
	}
	return members, before, nil
}

// checkOwn finds this member in the list and compares the URLs there with its advertised peer URLs.
// Both must be equal or have the same addresses.
func (c *Config) checkOwn(ctx context.Context, members []cluster.Member) error {
	i := slices.IndexFunc(members, func(x cluster.Member) bool { return x.Name == c.Name })
	if i < 0 {
		return configError(fmt.Errorf("--initial-cluster: no member is named %q (--name) in %q: "+
			"add this member as NAME=URL, or give it the --name that it "+
			"has there", c.Name, c.InitialCluster))
	}
	listed, advertised := members[i].PeerURLs,
		slices.Sorted(slices.Values(c.InitialAdvertisePeerURLs))
	if c.InitialClusterState == "existing" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	same, err := sameURLs(ctx, listed, advertised, c.Logger)
	if same {
		return nil
	}
	mismatch := fmt.Errorf("--initial-cluster: has %s for %q, but --initial-advertise-peer-urls "+
		"has %s: give both the same URL",
		strings.Join(listed, ","), c.Name, strings.Join(advertised, ","))
	if err != nil {
		// names that cannot be resolved may be resolved later
		return fmt.Errorf("%w (%w)", mismatch, err)
	}
	return configError(mismatch)
}
