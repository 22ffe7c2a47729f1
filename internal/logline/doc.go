// Package logline writes the log of the process to streams, files and systemd's journal.
//
// A line is like etcd's: a JSON object that begins with level, ts, caller and msg, or the same
// parts separated by tabs for people. zap encodes the lines; this package bounds them, in number
// for each place in the code and in the size of each text. Durations and errors are text, times
// have the form of ts.
//
//		log, err := logline.Open(logline.Config{Outputs: []string{"stderr", "/var/log/vigil.log"}})
//		slog.New(log.Handler())
//
//	 1. A record is one Write of one whole line to each output; lines do not mix, also if only a part of one could be written.
//	 2. A record below the level allocates nothing.
//	 3. An output that cannot be written to, or is not read, loses lines above MaxQueued, and blocks nobody who logs and no other output.
//	 4. A terminal acts on no byte of a line.
//	 5. Lines that are left out are counted in the next line of their place or, if there is none, in a line of their own. An output says
//	    itself how many lines it has lost.
//	 6. After Reopen, lines go to the files that have the names now: rotation by another program works.
package logline
