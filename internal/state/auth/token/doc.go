// Package token implements the two kinds of tokens that identify a user after its password was verified: simple tokens,
// which are random and stored by the members, and JSON Web Tokens, which are signed.
//
//  1. A token is never logged, nor the error of a token that cannot be parsed.
//  2. A simple token is valid on every member that has applied the entry which issued it. On each member it expires when
//     it was not used there for its time to live.
//  3. A JWT is valid until it expires, on every member with the key. It contains the auth revision at which it was
//     issued, by which package auth decides whether it still identifies the same user. It is accepted only with the
//     configured signing method of the member.
package token
