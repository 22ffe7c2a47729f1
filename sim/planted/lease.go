package planted

// lease are mistakes of leases, locks, elections, users and permissions.
var lease = []Mistake{}
