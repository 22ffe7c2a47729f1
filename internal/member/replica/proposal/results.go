package proposal

import "sync"

// results are calls with their results, until somebody takes them.
type results struct {
	mu struct {
		sync.Mutex
		list []*Call
	}
	ready chan struct{} // receives when the list stops being empty
}

// mostKept is the largest list of results whose memory is kept.
const mostKept = 4096

// Deliver passes results to Results, and returns the list without them. Those of a commit come together, so that their receiver is woken
// once.
func (q *Queue) Deliver(list []*Call) []*Call {
	if len(list) == 0 {
		return list
	}
	q.results.mu.Lock()
	q.results.mu.list = append(q.results.mu.list, list...)
	q.results.mu.Unlock()
	select {
	case q.results.ready <- struct{}{}:
	default:
	}
	if clear(list); cap(list) > mostKept {
		return nil
	}
	return list[:0]
}

// Results waits for results of started requests and appends all that there are to dst, unless stop is closed before. They
// must be given to Recycle. It may be called concurrently.
func (q *Queue) Results(dst []*Call, stop <-chan struct{}) []*Call {
	for n := len(dst); ; {
		q.results.mu.Lock()
		dst = append(dst, q.results.mu.list...)
		clear(q.results.mu.list)
		if q.results.mu.list = q.results.mu.list[:0]; cap(q.results.mu.list) > mostKept {
			q.results.mu.list = nil // it was as long as all requests under way
		}
		q.results.mu.Unlock()
		if len(dst) > n {
			return dst
		}
		select {
		case <-q.results.ready:
		case <-stop:
			return dst
		}
	}
}
