package console

import "net/http"

// routes declares the paths of the API.
func (c *Console) routes() {
	c.call("GET", "session", c.serveSession)
	c.api.HandleFunc("POST "+apiPrefix+"login", c.serveLogin)
	c.api.HandleFunc("POST "+apiPrefix+"logout", c.serveLogout)
	c.stream("live", c.serveLive)
	c.stream("compare", c.serveCompare)

	c.call("GET", "tree", c.serveTree)
	c.call("GET", "search", c.serveSearch)
	c.call("GET", "count", c.serveCount)
	c.call("GET", "key", c.serveKey)
	c.call("POST", "put", c.servePut)
	c.call("POST", "delete", c.serveDelete)
	c.stream("export", c.serveExport)
	c.call("POST", "import", c.serveImport)

	c.call("GET", "history", c.serveHistory)
	c.call("GET", "changes", c.serveChanges)
	c.call("GET", "diff", c.serveDiff)
	c.call("GET", "revision", c.serveRevision)

	c.call("GET", "watchers", c.serveWatchers)
	c.stream("tail", c.serveTail)

	c.call("GET", "leases", c.serveLeases)
	c.call("POST", "revoke", c.serveRevoke)
	c.call("GET", "locks", c.serveLocks)
	c.call("GET", "access", c.serveAccess)
	c.call("POST", "access", c.serveAccessChange)

	c.call("POST", "member", c.serveMemberChange)
	c.api.HandleFunc("GET "+apiPrefix+"snapshot", c.serveSnapshot)
	c.api.HandleFunc(apiPrefix, func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &failure{Status: http.StatusNotFound, Code: "request",
			Text: "the API of the console has no such path or method"})
	})
}
