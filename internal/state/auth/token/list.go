package token

// links are the neighbors of an entry in a list.
type links struct{ prev, next *entry }

// lane chooses the links of an entry: it is in two lists.
type lane interface{ of(*entry) *links }

type (
	byIndex struct{}
	byUser  struct{}
)

func (byIndex) of(e *entry) *links { return &e.inAll }
func (byUser) of(e *entry) *links  { return &e.ofUser }

// list is a doubly linked list of n entries. The zero value is empty.
type list[L lane] struct {
	lane        L
	first, last *entry
	n           int
}

func (l *list[L]) push(e *entry) {
	at := l.lane.of(e)
	at.prev, at.next = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.lane.of(l.last).next = e
	}
	l.last = e
	l.n++
}

func (l *list[L]) remove(e *entry) {
	at := l.lane.of(e)
	if at.prev == nil {
		l.first = at.next
	} else {
		l.lane.of(at.prev).next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		l.lane.of(at.next).prev = at.prev
	}
	*at = links{}
	l.n--
}
