// Package spelling finds the word that a misspelled one probably means, and quotes words for a
// shell.
package spelling

// Nearest returns the known word that is most similar to a misspelled one, the first of several, or
// "" if none is similar. A word may differ in one of three letters: inserted, left out, replaced,
// or exchanged with the next one.
func Nearest(word string, known []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns the number of mistakes between two words.
func distance(a, b string) int {
	// rows[i][j] is the distance of the first i letters of a and the first j of b. Three rows are
	// needed at a time.
	older, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], older[j-1]+1)
			}
		}
		older, row, next = row, next, older
	}
	return row[len(b)]
}
