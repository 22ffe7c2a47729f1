package client

// SetFirstPage sets how many keys a listing reads before it streams.
func SetFirstPage(l *Listing, n int64) { l.page = n }

// GoHome has a client look for the member that it prefers.
func GoHome(c *Client) { c.core.pool.goHome(0) }
