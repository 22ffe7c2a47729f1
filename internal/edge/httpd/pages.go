package httpd

import (
	"bytes"
	"container/list"
	"maps"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// maxPageBytes limits the pages that clients have not read yet. A page of the metrics has about 100
// KiB.
const maxPageBytes = 32 << 20

// maxUnread limits the requests whose pages wait for their clients. It is well below the share of
// maxPages that one address may have, so that clients that do not read keep no one from a page.
const maxUnread = maxPages / 8

// pages makes pages in memory, a few at a time, and sends them. The data from which a page is made
// may take many times its size, so a client that does not read must not hold them. Both the pages
// that wait for their clients and the requests for them are limited: above the limits, the
// connections of the clients that waited longest are closed.
type pages struct {
	most int64

	mu struct {
		sync.Mutex
		bytes   int64
		unread  int        // requests, of the pages in waiting
		waiting *list.List // of *madePage with readers, the oldest first
	}
}

// madePage is a page. It is not changed after it is made.
type madePage struct {
	header http.Header
	code   int
	body   bytes.Buffer

	// Guarded by pages.mu.
	readers map[*http.ResponseController]struct{}
	// in pages.mu.waiting; nil without readers, or after their connections were closed
	place *list.Element
}

func newPages(most int64) *pages {
	p := &pages{most: most}
	p.mu.waiting = list.New()
	return p
}

// handler returns a handler that makes the pages of next, one at a time for each processor.
func (p *pages) handler(next http.Handler) http.Handler {
	m := newMaker(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := m.makePage(r); page != nil {
			p.sendPage(w, page)
		}
	})
}

// shared is handler for pages that are the same for all clients: requests that wait get one page,
// which is made after all of them arrived.
func (p *pages) shared(next http.Handler) http.Handler {
	m := newMaker(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := m.sharePage(r); page != nil {
			p.sendPage(w, page)
		}
	})
}

// sendPage sends a page. The client may read it slowly, until other pages have too many bytes.
func (p *pages) sendPage(w http.ResponseWriter, page *madePage) {
	control := http.NewResponseController(w)
	p.addReader(page, control)
	defer p.removeReader(page, control)
	maps.Copy(w.Header(), page.header)
	if page.code != 0 {
		w.WriteHeader(page.code)
	}
	w.Write(page.body.Bytes()) // fails if the client does not read it
}

// addReader counts a page and its reader, and closes the connections of others if there are too
// many bytes or requests.
func (p *pages) addReader(page *madePage, control *http.ResponseController) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mu.unread >= maxUnread {
		p.cutOldest()
	}
	if page.place == nil {
		n := int64(page.body.Len())
		for p.mu.bytes+n > p.most && p.mu.waiting.Len() > 0 {
			p.cutOldest()
		}
		p.mu.bytes += n
		page.place = p.mu.waiting.PushBack(page)
	}
	if page.readers == nil {
		page.readers = map[*http.ResponseController]struct{}{}
	}
	page.readers[control] = struct{}{}
	p.mu.unread++
}

// cutOldest closes the connections of the clients whose page has waited longest. mu is held.
func (p *pages) cutOldest() {
	oldest := p.mu.waiting.Front().Value.(*madePage)
	for c := range oldest.readers {
		_ = c.SetWriteDeadline(time.Unix(1, 0)) // not every writer has a connection
	}
	p.mu.unread -= len(oldest.readers)
	clear(oldest.readers)
	p.uncountPage(oldest)
}

// removeReader notes that a page was sent, or its client is gone. The connection is no longer used.
func (p *pages) removeReader(page *madePage, control *http.ResponseController) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := page.readers[control]; ok {
		delete(page.readers, control)
		p.mu.unread--
	}
	if len(page.readers) == 0 {
		p.uncountPage(page)
	}
}

// uncountPage stops counting a page. mu is held.
func (p *pages) uncountPage(page *madePage) {
	if page.place != nil {
		p.mu.waiting.Remove(page.place)
		page.place = nil
		p.mu.bytes -= int64(page.body.Len())
	}
}

// maker makes the pages of a handler.
type maker struct {
	next   http.Handler
	places chan struct{} // one for each page that is being made

	mu struct {
		sync.Mutex
		pending map[pageKey]*pendingPage // that no request makes yet
	}
}

// pageKey is what a shared page depends on.
type pageKey struct{ method, url, accept, encoding string }

// pendingPage is a page that will be made.
type pendingPage struct {
	done chan struct{} // closed when there is the page, or making it has failed
	page *madePage     // nil if it has failed
	// lead has a value while no waiting request has taken on the making of the page. The request
	// that receives it makes the page.
	lead chan struct{}
	// waiting counts the requests. Guarded by maker.mu.
	waiting int
}

func newMaker(next http.Handler) *maker {
	m := &maker{next: next, places: make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))}
	m.mu.pending = map[pageKey]*pendingPage{}
	return m
}

// makePage makes the page of a request. It returns nil if the request is over.
func (m *maker) makePage(r *http.Request) *madePage {
	select {
	case m.places <- struct{}{}:
	case <-r.Context().Done():
		return nil
	}
	return m.makeWithPlace(r)
}

// makeWithPlace makes the page of a request that has a place.
func (m *maker) makeWithPlace(r *http.Request) *madePage {
	defer func() { <-m.places }()
	page := &madePage{header: http.Header{}}
	m.next.ServeHTTP((*pageWriter)(page), r)
	return page
}

// sharePage returns a page that is made after the call. Several requests share it. It returns nil
// if the request is over.
func (m *maker) sharePage(r *http.Request) *madePage {
	key := pageKey{r.Method, r.URL.String(), r.Header.Get("Accept"),
		r.Header.Get("Accept-Encoding")}
	for r.Context().Err() == nil {
		p := m.addWaiter(key)
		select {
		case <-p.done:
		case <-p.lead:
			m.makeForWaiters(r, key, p)
		case <-r.Context().Done():
		}
		if page := m.removeWaiter(key, p); page != nil {
			return page
		}
	}
	return nil
}

// addWaiter adds a request to those that wait for a page.
func (m *maker) addWaiter(key pageKey) *pendingPage {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.mu.pending[key]
	if p == nil {
		p = &pendingPage{done: make(chan struct{}), lead: make(chan struct{}, 1)}
		p.lead <- struct{}{}
		m.mu.pending[key] = p
	}
	p.waiting++
	return p
}

// removeWaiter removes a request, and returns its page, nil if that is not made. A page for which
// no request waits is not made.
func (m *maker) removeWaiter(key pageKey, p *pendingPage) *madePage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.waiting--; p.waiting == 0 && m.mu.pending[key] == p {
		delete(m.mu.pending, key)
	}
	select {
	case <-p.done:
		return p.page
	default:
		return nil
	}
}

// makeForWaiters makes a page for the requests that wait for it when it begins. If its own request
// ends before, another request takes over.
func (m *maker) makeForWaiters(r *http.Request, key pageKey, p *pendingPage) {
	select {
	case m.places <- struct{}{}:
		defer close(p.done)
		m.mu.Lock()
		delete(m.mu.pending, key)
		m.mu.Unlock()
		p.page = m.makeWithPlace(r)
	case <-r.Context().Done():
		p.lead <- struct{}{}
	}
}

// pageWriter collects a page.
type pageWriter madePage

// Header implements http.ResponseWriter.
func (w *pageWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *pageWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

// Write implements http.ResponseWriter.
func (w *pageWriter) Write(b []byte) (int, error) { return w.body.Write(b) }
