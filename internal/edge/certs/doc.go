// Package certs loads the certificates of a member and builds TLS configurations from them.
//
//	s, err := certs.Open(certs.Config{Kind: certs.Clients, Options: ..., Logger: log})
//	...
//	s.Server() // for each connection that is accepted
//	s.Client() // for each connection that is dialed
//
// Its promises:
//
//  1. Open reads every file that Options names, and fails if one of them cannot be used.
//  2. Server and Client check the files again and return a configuration with their present
//     content. A file that cannot be read later leaves the last content in use; this is logged once
//     for each change of the file.
//  3. Nothing is written before SaveSelfSigned.
package certs
