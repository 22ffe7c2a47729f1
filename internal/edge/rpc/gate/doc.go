// Package gate is what every call passes before and after its service: admission, rights, metrics
// and the log. It turns the endpoints of services into methods of the transport.
//
//  1. A method without a rule is rejected, whether authentication is enabled or not.
//  2. While authentication is enabled, the rule is checked before the service is called. A decision
//     that the rule leaves to the member uses the credentials of the call, which are in its
//     context.
//  3. A panic in a service fails that request or stream with code Internal, and is logged with its
//     stack. It does not end the process.
//  4. A call that Endpoint.Begin declined is served from the beginning by Endpoint.Unary. So each
//     error has one place.
package gate
