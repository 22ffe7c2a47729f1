package planted

// member are mistakes of changes of members, snapshots, backups, alarms and addresses.
var member = []Mistake{}
