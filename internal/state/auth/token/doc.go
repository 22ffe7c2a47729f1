// Package token implements the two kinds of tokens that identify a user after its password was verified: simple tokens,
// which are random and stored by the members, and JSON Web Tokens, which are signed.
//
//  1. A token is never logged, nor the error of a token that cannot be parsed. The log of the cluster has the hash of its
//     secret; the secret is known to the client only.
//  2. A simple token is valid on every member that has applied the entry which issued it. On each member it expires when
//     it was not used there for its time to live. It is not valid on a member that was started after it was issued and had it in
//     its log.
//  3. When a time to live has passed at the leader since tokens were issued, the leader proposes their end, and they end on every
//     member where they were not used: no clock is compared with that of another member, and a member that lags does not
//     accept a token that has expired on the others, unless there is no leader to ask (package access).
//  4. There are at most MaxPerUser tokens of a user and MaxTokens in total. The oldest one by its position in the log ends first.
//     Expired tokens are removed in slices, and never by Add.
//  5. A JWT is valid until it expires, on every member with the key. It contains the auth revision at which it was
//     issued, by which package auth decides whether it still identifies the same user. It is accepted only with the
//     configured signing method of the member.
package token
