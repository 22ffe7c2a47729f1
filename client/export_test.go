package client

// SetFirstPage sets how many keys a listing reads before it streams.
func SetFirstPage(l *Listing, n int64) { l.page = n }
