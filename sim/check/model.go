package check

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is the state of one key: its value, if it exists, and the revision of the newest change.
type register struct {
	Item
	there bool
	last  int64
}

// input is one operation on one key; init sets a state.
type input struct {
	*Op
	init register
	// rev is the revision of the write, if known; of an operation of unknown outcome too.
	rev int64
}

// model is etcd's meaning of one key: a write gives it the revision of the answer, which is above
// all former ones, a conditional put compares the modification revision, and a read sees the newest
// state.
var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, in, _ any) (bool, any) {
		s, i := state.(register), in.(input)
		if i.Op == nil {
			return true, i.init
		}
		o := i.Op
		switch {
		case o.Kind == Get, o.Kind == Cas && o.Outcome == Acked && !o.Done:
			if o.Kind == Cas && s.mod() == o.Expect {
				return false, s
			}
			if !s.there {
				return len(o.Found) == 0, s
			}
			return len(o.Found) == 1 && o.Found[0] == s.Item, s
		case o.Kind == Del && i.rev == 0 && o.Outcome == Acked:
			return !s.there, s
		case o.Kind == Del && i.rev == 0:
			return true, register{last: s.last}
		case o.Kind == Del:
			return s.there && i.rev > s.last, register{last: i.rev}
		case o.Kind == Cas && s.mod() != o.Expect:
			return false, s
		}
		now := Item{Key: i.init.Key, Value: o.Value, Create: s.Create, Mod: i.rev,
			Version: s.Version + 1}
		if !s.there {
			now.Create, now.Version = i.rev, 1
		}
		return i.rev > s.last, register{now, true, i.rev}
	},
	DescribeOperation: func(in, _ any) string {
		i := in.(input)
		if i.Op == nil {
			return fmt.Sprintf("at first %v", i.init.Item)
		}
		return fmt.Sprintf("%s %.12q expect %d: %s at %d, done %t, %v", i.Kind, i.Value, i.Expect,
			i.Outcome, max(i.rev, i.Rev), i.Done, i.Found)
	},
}

func (r register) mod() int64 {
	if !r.there {
		return 0
	}
	return r.Mod
}

// checkLinearizable searches an order of the operations on each key. A write of unknown outcome
// that took effect returned at the latest when a watcher saw it; one without an effect is omitted.
func checkLinearizable(v *Violations, h *History, ops []Op, revs []int64, patience time.Duration) {
	keys := map[string][]porcupine.Operation{}
	for n := range ops {
		o := &ops[n]
		on := o.Keys()
		if o.Kind == Get {
			on = []string{o.Key}
		}
		ret := int64(o.Ret)
		if o.Outcome != Acked {
			switch {
			case revs[n] != 0 && h.at(revs[n]) != nil:
				ret = max(int64(h.at(revs[n]).Seen), int64(o.Call))
			case o.Outcome == Unknown && o.Kind == Del:
				ret = math.MaxInt64
			default:
				continue
			}
		}
		for _, k := range on {
			keys[k] = append(keys[k], porcupine.Operation{
				ClientId: o.Client, Call: int64(o.Call), Return: ret,
				Input: input{Op: o, rev: revs[n], init: register{Item: Item{Key: k}}},
			})
		}
	}
	for k, list := range keys {
		was, there := h.Start[k]
		first := porcupine.Operation{Call: -2, Return: -1,
			Input: input{init: register{was, there, h.Base}}}
		list = slices.Insert(list, 0, first)
		switch result, info := porcupine.CheckOperationsVerbose(model, list, patience); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			v.Add("no order of the %d operations on %s was found or excluded in %v",
				len(list), k, patience)
		default:
			file := filepath.Join(os.TempDir(),
				fmt.Sprintf("vigil-chaos-%d.html", time.Now().UnixNano()))
			if err := porcupine.VisualizePath(model, info, file); err != nil {
				file = err.Error()
			}
			v.Add("no order explains the %d operations on %s: see %s", len(list), k, file)
		}
	}
}
