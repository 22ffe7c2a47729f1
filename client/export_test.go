package client

// SetFirstPage sets how many keys a listing reads before it streams.
func SetFirstPage(l *Listing, n int64) { l.page = n }

// GoHome has a client look for the member that it prefers.
func GoHome(c *Client) { c.core.pool.goHome(0) }

// Wanted is how many members a client keeps a connection to.
func Wanted(c *Client) (n int) {
	list, _ := c.core.pool.list()
	for _, m := range list {
		if wanted, _ := m.isWanted(); wanted {
			n++
		}
	}
	return n
}
