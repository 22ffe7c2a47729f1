package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// srvTimeout bounds all lookups of one list.
const srvTimeout = 30 * time.Second

// Lookup returns the members that the DNS lists: NAME=URL,.... A record whose address equals that
// of one of this member's advertised URLs gets the given name. The others are numbered, because the
// DNS has no member names.
func Lookup(ctx context.Context, c Config, name string, advertised []string) (string, error) {
	c = c.WithDefaults()
	ctx, cancel := context.WithTimeout(ctx, srvTimeout)
	defer cancel()
	var list []string
	var errs []error
	for _, kind := range []struct{ service, scheme string }{{"etcd-server-ssl", "https"},
		{"etcd-server", "http"}} {
		if c.SRVName != "" {
			kind.service += "-" + c.SRVName
		}
		log := c.Logger.With("service-scheme", kind.scheme, "service-name", kind.service,
			"server-name", name,
			"discovery-srv", c.SRV, "advertise-peer-urls", advertised)
		found, err := c.members(ctx, kind.service, kind.scheme, name, advertised)
		if err != nil {
			err = fmt.Errorf("error querying DNS SRV records for _%s %w", kind.service, err)
			errs = append(errs, err)
			log = log.With("error", err)
		}
		log.Info("get cluster for "+kind.service+" SRV", "found-cluster", found)
		list = append(list, found...)
	}
	if len(list) == 0 {
		return "", errors.Join(errs...)
	}
	for _, part := range list {
		if n, _, _ := strings.Cut(part, "="); n == name {
			return strings.Join(list, ","), nil
		}
	}
	return "", fmt.Errorf("cannot find local etcd member %q in SRV records", name)
}

// members looks up one service. An unusable record is an error only if no record is usable.
func (c *Config) members(ctx context.Context, service, scheme, name string,
	advertised []string) (list []string, err error) {
	own := map[string]*url.URL{} // by address
	for _, s := range advertised {
		u, err := url.Parse(s)
		if err != nil {
			return nil, err
		}
		addr, err := c.resolve(ctx, u.Hostname(), u.Port())
		if err != nil {
			return nil, err
		}
		own[addr] = u
	}
	_, records, err := c.Resolver.LookupSRV(ctx, service, "tcp", c.SRV)
	if err != nil {
		return nil, err
	}
	unnamed := 0
	for _, r := range records {
		// Names in records end with a dot, hosts in URLs do not.
		host, port := strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port))
		addr, rerr := c.resolve(ctx, r.Target, port)
		if rerr != nil {
			err = rerr
			continue
		}
		u := scheme + "://" + net.JoinHostPort(host, port)
		member := name
		mine, ok := own[addr]
		if !ok {
			member = strconv.Itoa(unnamed)
			unnamed++
		}
		if ok && mine.Scheme != scheme {
			err = fmt.Errorf("bootstrap at %s from DNS for %s has scheme mismatch with expected "+
				"peer %s", u, service, mine)
			continue
		}
		list = append(list, member+"="+u)
	}
	if len(list) > 0 {
		return list, nil
	}
	return nil, err
}

// resolve returns the address of a host with a port.
func (c *Config) resolve(ctx context.Context, host, port string) (string, error) {
	ip, err := Address(ctx, c.Resolver, host)
	return net.JoinHostPort(ip, port), err
}

// Address returns the first IPv4 address of a host, or its first address if it has no IPv4 one.
func Address(ctx context.Context, r *net.Resolver, host string) (string, error) {
	ips, err := r.LookupIPAddr(ctx, host)
	if err != nil {
		return "", err
	}
	for _, ip := range ips {
		if ip.IP.To4() != nil {
			return ip.String(), nil
		}
	}
	if len(ips) == 0 {
		return "", fmt.Errorf("lookup %s: no address", host)
	}
	return ips[0].String(), nil
}

// Clients returns the client URLs that the DNS lists for a cluster: https:// URLs from the records
// of _etcd-client-ssl._tcp, then http:// URLs from _etcd-client._tcp. A suffix that is not empty
// extends these names: _etcd-client-SUFFIX.
func Clients(ctx context.Context, r *net.Resolver, domain, suffix string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, srvTimeout)
	defer cancel()
	var list []string
	var errs []error
	for _, kind := range []struct{ service, scheme string }{{"etcd-client-ssl", "https"},
		{"etcd-client", "http"}} {
		if suffix != "" {
			kind.service += "-" + suffix
		}
		_, records, err := r.LookupSRV(ctx, kind.service, "tcp", domain)
		if err != nil {
			errs = append(errs, fmt.Errorf("error querying DNS SRV records for _%s: %w",
				kind.service, err))
		}
		for _, rec := range records {
			list = append(list, kind.scheme+"://"+
				net.JoinHostPort(strings.TrimSuffix(rec.Target, "."), strconv.Itoa(int(rec.Port))))
		}
	}
	if len(errs) == 2 {
		return nil, errors.Join(errs...)
	}
	return list, nil
}
