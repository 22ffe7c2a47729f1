// Package token implements the two kinds of tokens that identify a user after its password was
// verified: simple tokens, which are random and stored by the members, and JSON Web Tokens, which
// are signed.
//
//  1. No log line has a token, or the error of a token that cannot be parsed. The log of the
//     cluster has the hash of its secret; only the client knows the secret.
//  2. A simple token is valid on every member that has applied the entry which issued it. On each
//     member it expires when it was not used there for its time to live. It is not valid on a
//     member that started after the token was issued and had the entry in its log then.
//  3. When a time to live has passed at the leader since tokens were issued, the leader proposes
//     their end, and they end on every member where they were not used: no member compares its
//     clock with another member's, and a member that lags does not accept a token that has expired
//     on the others, unless there is no leader to ask (package access).
//  4. There are at most MaxPerUser tokens of a user and MaxTokens in total. The oldest one by its
//     position in the log ends first. Sweep removes expired tokens in slices; Add never does.
//  5. A JWT is valid until it expires, on every member with the key. It contains the auth revision
//     at which it was issued, from which package auth decides whether it still identifies the same
//     user. A member accepts it only with the signing method that the member is configured with.
package token
