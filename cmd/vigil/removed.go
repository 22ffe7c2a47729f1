package main

import "fmt"

// removedFlags are flags of earlier versions of Vigil, each with its replacement. Their names are
// rejected on the command line, in the environment and in the file: whoever sets one expects an
// effect.
var removedFlags = map[string]string{
	"experimental-transport": "vigil serves gRPC with its own server only",
}

// errRemoved returns the error for a setting that names a removed flag, nil if the flag was not
// removed. spelling is the setting as the user wrote it.
func errRemoved(name, spelling string) error {
	replacement, ok := removedFlags[name]
	if !ok {
		return nil
	}
	return fmt.Errorf("%s was removed: %s; delete the setting", spelling, replacement)
}
