// Package codec is the part of a wire codec that knows no message: primitives, a strict reader, a checking writer, records and an
// annotator that is driven by tables. Generated code calls it, field by field, in wire order.
//
// Three rules hold for everything here:
//
//   - A length or count that a peer sent is compared with the bytes that remain before anything depends on it (D-1, D-2).
//   - A structural mistake wins over a mistake of size, and of each the first in byte order is reported (D-3).
//   - Reading and writing allocate nothing but the growth of the destination and the error itself.
//
// All integers are big-endian and unsigned.
package codec
