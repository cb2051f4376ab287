// Package oracle interprets the specification in spec/ directly: it reads the YAML files as nodes and encodes, decodes and names the bytes of
// every message from what they say, and it reads routes and selectors by the grammar of routes.yaml. It shares no code with the generator, with
// what the generator makes, with the runtimes or with the broker, so that it can judge all of them; TestIndependence proves it.
//
// Order of checks, which the golden vectors pin (README section 4 of the reference):
//
//  1. the header of the record (W-01, W-02) and whether the message may be sent in that direction (W-05);
//  2. structural mistakes in byte order, the first one decides (D-1, D-2, D-4, D-6, UTF-8 of D-3);
//  3. in requests the grammar of routes and selectors (routes.md section 3);
//  4. mistakes against a bound or a range (D-3), the one with the smallest offset.
//
// A client checks of a route that it receives only the length and UTF-8.
package oracle
