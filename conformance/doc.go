// Package conformance is the suite that decides whether a broker or a client of the protocol is right. The packages below it are the
// engine of the suite; the suite itself runs them under Ginkgo, and the command fitz-conformance without it.
package conformance
