// Package pages tests the documents: their links, the texts of errors and log lines that they
// quote, and the commands of README.md and of every page of docs, which run against real processes
// in a temporary directory.
//
// The commands of a page are in fenced blocks of the language console:
//
//  1. A line that begins with "$ " is a command. It continues on the next line after a backslash,
//     and up to the end of a here-document. The lines after it are its output. All commands of a
//     page share a directory, its members and the variables of the shell; REPOSITORY is the
//     directory of the repository.
//  2. In the output "..." is any text in a line, and as a line of its own any number of lines. The
//     number of spaces and of dashes is not compared. An id of 14 to 16 hexadecimal digits is the
//     id of the run from its first occurrence in an output on, also in commands.
//  3. Addresses as 127.0.0.1:2379 and 10.0.0.1:2379 are loopback and free ports in the run; paths
//     below /etc and /var/lib are below the directory of the run.
//  4. Words after "console" say how a block runs. "start": each command is a program that keeps
//     running, and the lines after it are in its log in this order; the next block of another kind
//     waits until the members that run are ready. "live": the commands are interrupted when they
//     have written the output. "until": a command is repeated until its output is as on the page.
//     "fails": the commands end with an error.
//  5. A comment "<!-- run: stop NAME -->" ends the member of that name as Ctrl-C does, "kill NAME"
//     by SIGKILL, and "exit NAME" waits until it exits by itself. "start NAME FLAGS" starts it
//     again with its last command, in which the flags replace others or are added for this
//     start. "cluster NAME=HOST ..." starts members with the command that
//     docs/operations/cluster.md has. The name of a member without --name is default.
//  6. A comment that begins with a line "<!-- console WORDS" and ends with a line "-->" is a block
//     that readers do not see: it brings about what the page assumes.
//
// Blocks of commands that cannot run in a test have the language sh, after a comment "<!-- not run:
// REASON -->". The test fails for every block that is neither, for indented blocks, and for
// commands in blocks of another language.
package pages
