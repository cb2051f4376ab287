// Package auth decides who a session is and what it may do (auth.md): it verifies the token of a CONNECT, finds the family of its
// identity, and compiles its permissions into an [Access], which answers for as long as the session lives. It knows neither sessions nor
// the wire: the session layer hands it a token and closes the connection when it is refused.
//
// Nothing of a token but the outcome is kept, logged or told to anybody: a refusal is one of a few fixed texts.
package auth
