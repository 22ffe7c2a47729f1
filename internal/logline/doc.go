// Package logline makes the lines of the process's log and brings them where they go.
//
// A line is what etcd's would be: a JSON object that begins with level, ts, caller and msg, or the same
// separated by tabs for people. Durations and errors are text, times have the form of ts.
//
//		log, err := logline.Open(logline.Config{Outputs: []string{"stderr", "/var/log/vigil.log"}})
//		slog.New(log.Handler())
//
//	 1. A record is one Write of one whole line to each output; lines do not mix.
//	 2. A record below the level costs no memory.
//	 3. An output that cannot be written to loses its lines and holds nobody up.
//	 4. After Reopen, files are the ones that their names name now: rotation by another program works.
package logline
