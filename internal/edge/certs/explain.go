package certs

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// explainPair says what to do about a certificate and a key that cannot be used together, with ": "
// before it. It returns "" if a file cannot be read, because the error says so.
func explainPair(cert, key string) string {
	certText, err := os.ReadFile(cert)
	if err != nil {
		return ""
	}
	keyText, err := os.ReadFile(key)
	if err != nil {
		return ""
	}
	certHas, keyHas := blocksOf(certText), blocksOf(keyText)
	switch {
	case !certHas.certificate && certHas.key && keyHas.certificate:
		return ": exchange the two files: the first holds the key and the second the certificate"
	case !certHas.certificate:
		return ": " + adviseOnPEM(cert, "certificate", certText)
	case keyHas.encrypted:
		return fmt.Sprintf(": the key in %s is encrypted, and no flag has its passphrase: write "+
			"it without (openssl pkey -in %[1]s -out NEW)", key)
	case !keyHas.key:
		return ": " + adviseOnPEM(key, "private key", keyText)
	}
	return ": name the key for which this certificate was issued"
}

// content says what blocks a PEM file has.
type content struct{ certificate, key, encrypted bool }

func blocksOf(text []byte) (c content) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c.certificate = c.certificate || block.Type == "CERTIFICATE"
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			c.key = true
			c.encrypted = c.encrypted || block.Type == "ENCRYPTED PRIVATE KEY" ||
				block.Headers["DEK-Info"] != ""
		}
	}
	return c
}

// adviseOnPEM says what to do about a file without the wanted block.
func adviseOnPEM(file, what string, text []byte) string {
	const sequence = 0x30 // the first byte of DER
	if bytes.HasPrefix(text, []byte{sequence}) {
		command := "x509"
		if what != "certificate" {
			command = "pkey"
		}
		return fmt.Sprintf("%s is in DER: convert it (openssl %s -inform der -in %[1]s -out NEW)",
			file, command)
	}
	return fmt.Sprintf("name a file with the %s in PEM instead of %s", what, file)
}
