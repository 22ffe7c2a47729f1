package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// describe returns the list of the parts of a product (SBOM) as CycloneDX JSON.
func (r *release) describe(d *product, l *linked) ([]byte, error) {
	main := cdx.Component{
		BOMRef: d.name, Type: cdx.ComponentTypeApplication, Name: d.name, Version: r.version,
		PackageURL:  "pkg:golang/" + path.Join(r.source.module, d.module) + "@v" + r.version,
		Description: d.summary,
		Licenses:    &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties: &[]cdx.Property{{Name: "vigil:commit", Value: r.source.commit},
			{Name: "vigil:go", Value: l.goVersion}},
	}
	var parts []cdx.Component
	var refs []string
	add := func(module, version, sum string) error {
		c := cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: module, Version: version,
			Scope:      cdx.ScopeRequired,
			PackageURL: "pkg:golang/" + module + "@" + version,
			Licenses:   &cdx.Licenses{{Expression: d.licences.ids[module]}},
		}
		c.BOMRef = c.PackageURL
		if sum != "" {
			// The hash of go.sum: SHA-256 over the names and hashes of the module's files.
			hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
			if err != nil {
				return fmt.Errorf("checksum of module %s: %w", module, err)
			}
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
		}
		parts, refs = append(parts, c), append(refs, c.BOMRef)
		return nil
	}
	for _, m := range l.modules {
		if err := add(m.Path, m.Version, m.Sum); err != nil {
			return nil, err
		}
	}
	if err := add(stdlib, l.goVersion, ""); err != nil {
		return nil, err
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(path.Join(r.source.module, d.module), r.version, r.source.commit)
	bom.Metadata = &cdx.Metadata{Timestamp: r.source.time.Format(time.RFC3339), Component: &main}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cdx.SpecVersion1_5)
	return b.Bytes(), err
}

// serial returns a UUID that is the same for the same release.
func serial(parts ...string) string {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
