package client

// SetFirstPage sets how many keys a listing reads before it streams.
func SetFirstPage(l *Listing, n int64) { l.page = n }

// ReturnToPreferred makes a client look for the member that it prefers.
func ReturnToPreferred(c *Client) { c.core.pool.ReturnToPreferred(0) }

// Wanted is how many members a client keeps a connection to.
func Wanted(c *Client) (n int) { return c.core.pool.Wanted() }
