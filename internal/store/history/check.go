package history

import (
	"context"
	"errors"
)

// Check reads every byte of the sealed segments and returns the first thing that is not as it was
// written, as a CorruptError, or ctx's error. Reads and writes continue concurrently.
func (l *Log) Check(ctx context.Context) error {
	for _, seg := range l.cat.segments() {
		for {
			src := seg.source()
			if src.file == nil {
				break
			}
			err := src.file.Check(ctx)
			if errors.Is(err, ErrClosed) && seg.source() != src {
				continue // it was rewritten
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}
