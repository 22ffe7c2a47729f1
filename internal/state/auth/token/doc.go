// Package token is the two kinds of tokens by which users who have shown their password are known again:
// simple ones, which are random and remembered, and JSON Web Tokens, which are signed.
//
//  1. A token is never logged, nor is the error of one that cannot be read.
//  2. A simple token is known to every member that has applied the entry which issued it, and stops being
//     valid on each when it was not used there for its time to live.
//  3. A JWT is valid until it expires on every member that has the key, and says at which auth revision it
//     was issued, by which package auth decides whether it still names the same user. It is believed only
//     with the signing method that this member is configured for.
package token
