//go:build wasip1

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"vigil/client"
	"vigil/client/mirror"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// mirrors follows the keys of the operations with a mirror of the library, and reports its views.
func mirrors(c *setup.Client, rng *rand.Rand) error {
	cl, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	copied := map[string]mirror.Item[string]{} // what the changes say
	var wrong error
	m, err := mirror.Start(context.Background(), mirror.Config[string]{
		Client: cl, Key: prefix, Fresh: time.Second, Logger: newLog(),
		Decode: func(kv client.KeyValue) (string, error) { return short(kv.Value), nil },
		OnChange: func(ch mirror.Change[string]) {
			old, was := copied[ch.Key()]
			if was != (ch.Old != nil) || was && old != *ch.Old {
				wrong = fmt.Errorf("a change of %+v follows %+v", ch.Old, old)
			}
			delete(copied, ch.Key())
			if ch.New != nil {
				copied[ch.Key()] = *ch.New
			}
		}})
	if err != nil {
		return err
	}
	defer m.Close()
	for goesOn(c, c.Stop) && wrong == nil {
		time.Sleep(time.Duration(rng.Int64N(2 * c.Think)))
		o := check.Op{Client: c.First + 92, Member: -1, Kind: check.Mirror,
			Key: prefix, Call: now()}
		v := m.View()
		if v.Revision() == 0 {
			continue // there is none yet
		}
		for it := range v.All() {
			o.Found = append(o.Found,
				check.Item{Key: it.Key, Value: it.Value, Create: it.CreateRevision,
					Mod: it.ModRevision, Version: it.Version})
		}
		o.Outcome, o.Rev, o.Ret = check.Acked, v.Revision(), now()
		report(setup.Report{Op: &o})
	}
	return wrong
}
