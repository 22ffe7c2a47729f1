package proposal

import "sync"

// results are calls with their results, until TakeResults.
type results struct {
	mu struct {
		sync.Mutex
		list []*Call
	}
}

// mostKept is the largest list of results whose memory is kept.
const mostKept = 4096

// Deliver passes results to TakeResults, and returns the list without them. Options.Answers must be
// posted.
func (q *Queue) Deliver(list []*Call) []*Call {
	if len(list) == 0 {
		return list
	}
	q.results.mu.Lock()
	q.results.mu.list = append(q.results.mu.list, list...)
	q.results.mu.Unlock()
	if clear(list); cap(list) > mostKept {
		return nil
	}
	return list[:0]
}

// deliverNow is Deliver for goroutines that do not carry out a stage.
func (q *Queue) deliverNow(list []*Call) []*Call {
	if len(list) > 0 {
		list = q.Deliver(list)
		q.o.Answers.Post()
	}
	return list
}

// DeliverReads passes on reads with their results, and returns the list without them.
func (q *Queue) DeliverReads(list []*Call) []*Call { return q.deliverNow(list) }

// Results returns the number of results that TakeResults would return.
func (q *Queue) Results() int {
	q.results.mu.Lock()
	defer q.results.mu.Unlock()
	return len(q.results.mu.list)
}

// TakeResults appends all results to dst. They must be given to Recycle. It may be called
// concurrently.
func (q *Queue) TakeResults(dst []*Call) []*Call {
	q.results.mu.Lock()
	defer q.results.mu.Unlock()
	dst = append(dst, q.results.mu.list...)
	clear(q.results.mu.list)
	if q.results.mu.list = q.results.mu.list[:0]; cap(q.results.mu.list) > mostKept {
		q.results.mu.list = nil // it was as long as all requests under way
	}
	return dst
}
