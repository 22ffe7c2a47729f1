//go:build wasip1

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

// lower is the version to which the cluster can go back.
const lower = "3.6.0"

// downgrade enables and cancels a downgrade from time to time. Each call is repeated until its
// effect is certain. The members must agree about it; see compareMembers.
func downgrade(c *setup.Client, rng *rand.Rand, all *client.Client) error {
	for goesOn(c, c.Stop) {
		time.Sleep(time.Duration(rng.Int64N(int64(15 * time.Second))))
		request(func(ctx context.Context) (any, error) {
			return all.Maintenance().Downgrade(ctx, client.DowngradeValidate, lower)
		})
		change(all, c.Stop, client.DowngradeEnable, client.ErrDowngradeInProgress)
		time.Sleep(time.Duration(rng.Int64N(int64(12 * time.Second))))
		change(all, c.Stop, client.DowngradeCancel, client.ErrNoDowngrade)
	}
	return nil
}

// change makes a call until it succeeds, or fails because it had its effect before, or the time is
// over.
func change(c *client.Client, stop int64, action client.DowngradeAction, before error) {
	for int64(now()) < stop {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		_, err := c.Maintenance().Downgrade(ctx, action, lower)
		cancel()
		if err == nil || errors.Is(err, before) ||
			errors.Is(err, client.ErrInvalidDowngradeTargetVersion) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}
