package replica

import (
	"errors"
	"io/fs"
	"sync"

	"vigil/internal/store/history"
)

const (
	// mostDamage is how many damaged places are told apart: more are one damaged disk.
	mostDamage = 1000
	// sameDamage is how far apart damage in a file counts as one, after the end of a piece whose size is known: the scrubber names the
	// batch of a record, a read the record.
	sameDamage = 64 << 10
)

// damagePlaces are the places on disk that were found damaged. The same one is met again and again.
type damagePlaces struct {
	mu struct {
		sync.Mutex
		list []damagePlace
	}
}

type damagePlace struct {
	file        string
	offset, end int64
}

// near reports whether two places are one.
func (p damagePlace) near(o damagePlace) bool {
	return p.file == o.file && p.offset < o.end+sameDamage && o.offset < p.end+sameDamage
}

// add adds the place that an error names, and reports whether it is new.
func (d *damagePlaces) add(err error) bool {
	var p damagePlace
	var path *fs.PathError
	if c, ok := errors.AsType[*history.CorruptError](err); ok {
		p = damagePlace{c.File, c.Offset, c.Offset + c.Length}
	} else if errors.As(err, &path) {
		p.file = path.Path
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range d.mu.list {
		if p.near(o) {
			d.mu.list[i].offset, d.mu.list[i].end = min(o.offset, p.offset), max(o.end, p.end)
			return false
		}
	}
	if len(d.mu.list) == mostDamage {
		return false
	}
	d.mu.list = append(d.mu.list, p)
	return true
}

// count returns how many places there are.
func (d *damagePlaces) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.mu.list)
}
