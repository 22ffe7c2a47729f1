//go:build wasip1

package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vigil/client"
	"vigil/sim/guest/sys"
	"vigil/sim/scenario/setup"
)

// queueLimits bound what a member may hold, by metric, for each other member where it has one. One
// crowd is read slowly, so one stream may have a full queue of 4 MiB; the other streams have
// little. The queue for another member takes 64 MiB and more; with members that accept requests of
// 128 KiB and clients that wait for answers, nothing comes near that or near the memory for
// results.
var queueLimits = map[string]float64{
	"vigil_watch_queued_bytes":       6 << 20,
	"vigil_watch_unmatched_bytes":    16 << 20,
	"vigil_peer_queued_bytes":        8 << 20,
	"vigil_peer_queued_messages":     4096,
	"vigil_peer_pending_connections": 64,
	"vigil_range_bytes_in_flight":    8 << 20,
	"vigil_range_waiting":            256,
	"etcd_server_proposals_pending":  1024,
}

// queues compares the queues of all members with their bounds from time to time, also while some of
// them cannot reach others.
func queues(c *setup.Client, rng *rand.Rand, _ *client.Client) error {
	for goesOn(c, c.Stop) {
		time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Second))))
		for _, e := range c.Endpoints {
			if err := checkQueues(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkQueues compares the queues of a member with their bounds. A member that does not answer is
// not judged.
func checkQueues(endpoint string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	transport := &http.Transport{DialContext: sys.Network{}.Dial, DisableCompression: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint+"/metrics", nil)
	if err != nil {
		return err
	}
	a, err := transport.RoundTrip(r)
	if err != nil {
		return nil
	}
	defer a.Body.Close()
	for lines := bufio.NewScanner(a.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ := strings.Cut(series, "{")
		limit, ok := queueLimits[name]
		if !ok {
			continue
		}
		if n, err := strconv.ParseFloat(value, 64); err != nil || n > limit {
			return fmt.Errorf("%s of member %s is %s, above %.0f", series, endpoint, value, limit)
		}
	}
	return nil
}
