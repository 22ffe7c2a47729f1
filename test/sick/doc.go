// Package sick makes clusters of real members sick, and compares what each view says with the
// truth: vigilctl doctor, vigilctl top, the overview of the console, and the log.
//
//  1. table.go has a row for each sickness: the cause, the truth, and for each view the words that
//     it must and must not say. A view may need a moment to notice; it is read again until it says
//     them.
//  2. Words are those of one finding, one line of a table, or one line of the log. Numbers,
//     addresses and times are not compared.
//  3. testdata/views.md is the same table with what the views said when the test last ran with
//     -rewrite (make sicknesses). Every run compares the page with the table.
//  4. Sicknesses of disks need root, to mount and to freeze file systems. Without it they are
//     skipped.
package sick
