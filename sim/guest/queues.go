//go:build wasip1

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vigil/sim/guest/sys"
)

// queueLimits bound what a member may hold, in bytes by metric. One crowd is read slowly, so one stream may have a full
// queue of 4 MiB; the other streams have little.
var queueLimits = map[string]float64{
	"vigil_watch_queued_bytes":    6 << 20,
	"vigil_watch_unmatched_bytes": 16 << 20,
}

// checkQueues compares the queues of a member with their bounds. A member that does not answer is not judged.
func checkQueues(endpoint string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	transport := &http.Transport{DialContext: sys.Network{}.Dial}
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
		name, value, _ := strings.Cut(lines.Text(), " ")
		limit, ok := queueLimits[name]
		if !ok {
			continue
		}
		if n, err := strconv.ParseFloat(value, 64); err != nil || n > limit {
			return fmt.Errorf("%s of member %s is %s, above %.0f", name, endpoint, value, limit)
		}
	}
	return nil
}
