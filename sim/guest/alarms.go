//go:build wasip1

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// quietEnd is how long before the end of the work no alarm is raised any more: writes must succeed
// soon after the faults.
const quietEnd = 25 * time.Second

// alarms raises the alarm NOSPACE by hand from time to time, and clears it again. The alarm names a
// member that does not exist, because a member clears its own alarm when it has space. While the
// alarm is active no write that needs space is accepted, by any member.
func alarms(c *setup.Client, rng *rand.Rand, all *client.Client) error {
	for {
		rest(c)
		time.Sleep(time.Duration(rng.Int64N(int64(12 * time.Second))))
		if int64(now()) > c.Stop-int64(quietEnd) {
			return nil
		}
		raised := check.AlarmOp{Call: now()}
		var err error
		raised.Rev, err = raiseAlarm(c.Endpoints[rng.IntN(len(c.Endpoints))], 1+rng.Uint64()>>1)
		raised.Ret = now()
		if err == nil {
			time.Sleep(time.Duration(rng.Int64N(int64(1500 * time.Millisecond))))
		}
		raised.Cleared = now()
		clearAlarms(all, c.Stop)
		if err == nil {
			report(setup.Report{Alarm: &raised})
		}
	}
}

// raiseAlarm raises the alarm NOSPACE of a member. It returns a revision that is not older than the
// alarm.
func raiseAlarm(endpoint string, id uint64) (rev int64, err error) {
	conn, err := dial(endpoint)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	r, err := etcdserverpb.NewMaintenanceClient(conn).Alarm(ctx,
		&etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: id,
			Alarm: etcdserverpb.AlarmType_NOSPACE})
	return r.GetHeader().GetRevision(), err
}

// clearAlarms clears the alarms NOSPACE of all members until there is none. A request whose answer
// was lost may have raised one late, so that the list is read several times.
func clearAlarms(all *client.Client, stop int64) {
	for none := 0; none < 3 && int64(now()) < stop; {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		list, err := all.Maintenance().Alarms(ctx)
		if err == nil {
			none++
			for _, a := range list {
				if none = 0; a.Type == client.AlarmNoSpace {
					_, _ = all.Maintenance().AlarmDisarm(ctx, a)
				}
			}
		}
		cancel()
		time.Sleep(200 * time.Millisecond)
	}
}
