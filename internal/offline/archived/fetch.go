package archived

import (
	"context"
	"errors"

	"vigil/internal/bucket"
	"vigil/internal/offline/restore"
	"vigil/internal/store/archive"
)

const (
	// readAhead is how many objects are read at a time, aheadBytes about the most bytes of them.
	readAhead  = 16
	aheadBytes = 128 << 20
)

// fetched is an object that was read.
type fetched struct {
	name string
	data []byte
	err  error
}

// wanted is an object to be read.
type wanted struct {
	name string
	size int64
}

// fetchObjects reads objects, several at a time, and calls visit with each of them in their order.
func (a *Archive) fetchObjects(ctx context.Context, list []wanted,
	visit func(fetched) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var pending []chan fetched
	defer func() {
		cancel()
		for _, c := range pending {
			<-c
		}
	}()
	next, size := 0, int64(0)
	for i := range list {
		for next < len(list) &&
			(next == i || len(pending) < readAhead && size+list[next].size <= aheadBytes) {
			c, w := make(chan fetched, 1), list[next]
			pending = append(pending, c)
			size += w.size
			next++
			go func() {
				data, err := a.getObject(ctx, w.name, w.size)
				c <- fetched{w.name, data, err}
			}()
		}
		f := <-pending[0]
		pending = pending[1:]
		size -= list[i].size
		switch {
		case errors.Is(f.err, bucket.ErrNotFound):
			f.err = a.noteDamage(f.name, errors.New("it is missing"))
		case errors.Is(f.err, bucket.ErrSize):
			f.err = a.noteDamage(f.name, f.err)
		}
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// parts returns the objects to read for parts.
func wantedParts(list []archive.Part) []wanted {
	out := make([]wanted, len(list))
	for i, p := range list {
		out[i] = wanted{p.Name, p.Size}
	}
	return out
}

func wantedLogs(list []LogObject) []wanted {
	out := make([]wanted, len(list))
	for i, o := range list {
		out[i] = wanted{o.Object.Key, o.Object.Size}
	}
	return out
}

// eachLog calls visit with log objects, in their order.
func (a *Archive) eachLog(ctx context.Context, list []LogObject,
	visit func(LogObject, *archive.Object) error) error {
	i := 0
	return a.fetchObjects(ctx, wantedLogs(list), func(f fetched) error {
		o := list[i]
		i++
		if f.err != nil {
			return f.err
		}
		object, err := a.reader.Open(f.name, f.data)
		if err != nil {
			return a.noteDamage(f.name, err)
		}
		return visit(o, object)
	})
}

// eachPart calls visit with the parts of a base of one kind, in their order.
func (a *Archive) eachPart(ctx context.Context, base *archive.Base, kind string,
	visit func(*archive.Object) error) error {
	list := base.PartsOf(kind)
	i := 0
	return a.fetchObjects(ctx, wantedParts(list), func(f fetched) error {
		p := &list[i]
		i++
		if f.err != nil {
			return f.err
		}
		object, err := a.reader.OpenPart(p, f.data)
		if err != nil {
			return a.noteDamage(f.name, err)
		}
		return visit(object)
	})
}

// noteContent returns the error of reading and using the content of an object, and records damage
// of it.
func (a *Archive) noteContent(name string, err error) error {
	var bad *restore.ContentError
	if err != nil && (unusable(err) || errors.As(err, &bad)) {
		return a.noteDamage(name, err)
	}
	return err
}
