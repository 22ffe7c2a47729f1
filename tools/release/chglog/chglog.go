// Package chglog stands for the module of this name, by a replace directive of the module above.
// nfpm uses it to write changelogs into packages, a feature that a release of Vigil does not use;
// the real module would add git, SSH and templates to what `./check` compiles. Every function
// fails.
package chglog

import (
	"errors"
	"text/template"
	"time"
)

var errLeftOut = errors.New("the changelogs of nfpm are left out of this build")

// PackageChangeLog is the changelog of a package.
type PackageChangeLog struct {
	Name    string
	Entries []*ChangeLog
}

// ChangeLog is the part of a changelog for one version.
type ChangeLog struct {
	Semver, Packager string
	Date             time.Time
}

// Parse would read a changelog from a file.
func Parse(string) ([]*ChangeLog, error) { return nil, errLeftOut }

// DebTemplate would return the template of Debian's format.
func DebTemplate() (*template.Template, error) { return nil, errLeftOut }

// LoadTemplateData would parse a template.
func LoadTemplateData(string) (*template.Template, error) { return nil, errLeftOut }

// FormatChangelog would execute a template.
func FormatChangelog(*PackageChangeLog, *template.Template) (string, error) {
	return "", errLeftOut
}
