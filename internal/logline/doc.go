// Package logline writes the log of the process to streams, files and systemd's journal.
//
// A line is like etcd's: a JSON object that begins with level, ts, caller and msg, or the same
// parts separated by tabs for people. zap encodes the lines. This package bounds the number of
// lines for each place in the code and the size of each text. Durations and errors are text, times
// have the form of ts.
//
//		log, err := logline.Open(logline.Config{Outputs: []string{"stderr", "/var/log/vigil.log"}})
//		slog.New(log.Handler())
//
//	 1. A record is one Write of one whole line to each output. Lines never mix, even after a
//	    partial write.
//	 2. A record below the level allocates nothing.
//	 3. An output that fails, or that nobody reads, loses lines above MaxQueued. It blocks
//	    neither the callers nor other outputs.
//	 4. A terminal acts on no byte of a line.
//	 5. The next line of the same place, or else a separate line, has the number of omitted
//	    lines. Each output reports how many lines it has lost.
//	 6. After Reopen, lines go to the files that have the names now: rotation by another program
//	    works.
package logline
