// Package supervise keeps one client connected: it opens a session, opens a new one when that has ended, tells everybody who wants to
// know, and hands calls to whatever session there is.
//
// What ends with a session is not restored (W-35): registrations, held things and listings are told that their session is over, and whoever
// owns them decides. Calls made while there is no session wait for the next one, within bounds and deadlines.
//
// The package knows no message of a particular protocol. What it must know arrives in Options, which generated code fills.
package supervise
