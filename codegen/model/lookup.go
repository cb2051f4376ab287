package model

import (
	"math/big"
	"slices"
)

// Enum returns the enumeration of that name, nil when the domain has none.
func (d *Domain) Enum(name string) *Enum { return find(d.Enums, name) }

// Struct returns the struct of that name, nil when the domain has none.
func (d *Domain) Struct(name string) *Struct { return find(d.Structs, name) }

// Union returns the union of that name, nil when the domain has none.
func (d *Domain) Union(name string) *Union { return find(d.Unions, name) }

// Operation returns the operation of that name, nil when the domain has none.
func (d *Domain) Operation(name string) *Operation { return find(d.Operations, name) }

// Message returns the control or push message of that name, nil when the domain has none.
func (d *Domain) Message(name string) *Message { return find(d.Messages, name) }

// AllFields returns every field of the domain in file order of its kinds: structs, unions, requests, replies, messages.
func (d *Domain) AllFields() []*Field {
	var out []*Field
	for _, s := range d.Structs {
		out = append(out, s.Fields...)
	}
	for _, u := range d.Unions {
		for _, v := range u.Variants {
			out = append(out, v.Fields...)
		}
	}
	for _, op := range d.Operations {
		out = append(out, op.Request...)
		out = append(out, op.Reply...)
	}
	for _, m := range d.Messages {
		out = append(out, m.Fields...)
	}
	return out
}

// Bound returns the bound of that name, nil when there is none.
func (s *Spec) Bound(name string) *Bound { return find(s.Bounds, name) }

// Error returns the error code of that name, nil when there is none.
func (s *Spec) Error(name string) *ErrorCode { return find(s.Errors, name) }

// Class returns the error class of that name, nil when there is none.
func (s *Spec) Class(name string) *ErrorClass { return find(s.Classes, name) }

// Domain returns the domain of that name, nil when there is none.
func (s *Spec) Domain(name string) *Domain { return find(s.Domains, name) }

// Scheme returns the route scheme of that name, nil when there is none.
func (s *Spec) Scheme(name string) *Scheme { return find(s.Routes.Schemes, name) }

// Capability returns the capability of that name, nil when there is none.
func (s *Spec) Capability(name string) *Capability { return find(s.Wire.Capabilities, name) }

// CloseReason returns the close reason of that name, nil when there is none.
func (s *Spec) CloseReason(name string) *CloseReason { return find(s.Wire.CloseReasons, name) }

// Envelope returns the envelope of that name, nil when there is none.
func (s *Spec) Envelope(name string) *Envelope { return find(s.Wire.Envelopes, name) }

// Form returns the answer form of that name, nil when there is none.
func (s *Spec) Form(name string) *AnswerForm { return find(s.Wire.Forms, name) }

// FixedText returns the fixed text of that name, nil when there is none.
func (s *Spec) FixedText(name string) *FixedText { return find(s.Wire.FixedTexts, name) }

// Big is the value as a big integer.
func (v *EnumValue) Big() *big.Int { return new(big.Int).SetUint64(v.Value) }

// id is the name of a named part; it makes find work for every kind of part.
func (n Named) id() string { return n.Name }

func find[T interface{ id() string }](list []T, name string) T {
	if i := slices.IndexFunc(list, func(x T) bool { return x.id() == name }); i >= 0 {
		return list[i]
	}
	var none T
	return none
}
