package history

import (
	"errors"
	"fmt"
	"io/fs"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// allocationError returns the error of an allocation that failed with err: a kv.Shortage if a
// resource is lacking.
func allocationError(path string, err error) error {
	err = fmt.Errorf("history: allocate %s: %w", path, err)
	if marked := vfs.MarkShortage(err); kv.Shortage(marked) || !isFinal(err) {
		return marked
	}
	return err
}

// openReserve opens the reserve that an earlier run left, whole, and returns its size. It returns
// nil if there is none.
func openReserve(dir directory, sizes *sizes) (vfs.File, int64, error) {
	path := dir.join(format.ReserveName)
	file, err := dir.fs.OpenWrite(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, allocationError(path, err)
	}
	size, err := file.Size()
	if err == nil && size >= sizes.leastSize() && size <= sizes.most {
		// A crash before it was durable may have freed its space.
		if err = file.Preallocate(size); err == nil {
			return file, size, nil
		}
	}
	// One of another segment size, one that a crash cut short, or one with holes: it is allocated
	// again.
	_ = file.Close()
	if rerr := dir.fs.Remove(path); rerr != nil {
		err = rerr
	}
	if err != nil && vfs.CauseOf(err) != vfs.NoSpace {
		return nil, 0, allocationError(path, err)
	}
	return nil, 0, nil
}

// makeReserve allocates the reserve, which does not exist, and returns its size.
func makeReserve(dir directory, sizes *sizes) (vfs.File, int64, error) {
	path := dir.join(format.ReserveName)
	file, err := dir.fs.Create(path)
	if err != nil {
		return nil, 0, allocationError(path, err)
	}
	size := sizes.nextSize()
	err = file.Preallocate(size)
	for smaller(size) >= sizes.leastSize() && vfs.CauseOf(err) == vfs.NoSpace {
		size = smaller(size)
		if err = file.Truncate(0); err == nil { // frees the part that was allocated
			err = file.Preallocate(size)
		}
	}
	if err == nil {
		err = dir.syncFile(file, path)
	}
	if err == nil {
		err = dir.syncNames()
	}
	if err != nil {
		dir.discard(file, path) // frees the part that was allocated
		return nil, 0, allocationError(path, err)
	}
	return file, size, nil
}
