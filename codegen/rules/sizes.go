package rules

import (
	"fmt"
	"slices"

	"github.com/fitzwire/fitz/codegen/model"
)

var sizeRules = []Rule{
	{"SIZE_RECEIVED", "The largest value that a client sends fits a record.", sizeReceived},
	{"SIZE_SENT", "The largest value that the broker sends fits a labelled record.", sizeSent},
}

func sizeReceived(c *checker) {
	limit := c.spec.Bound(c.spec.Wire.Framing.LengthMax)
	if limit == nil {
		return
	}
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			c.fits(d, op.Named, "request", op.Request, 0, limit)
		}
		for _, m := range d.Messages {
			if m.Direction != "to_client" {
				c.fits(d, m.Named, "message", m.Fields, 0, limit)
			}
		}
	}
}

func sizeSent(c *checker) {
	limit := c.spec.Bound(c.spec.Wire.Framing.ReplyMax)
	if limit == nil {
		return
	}
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			c.fits(d, op.Named, "reply", op.Reply, 1, limit)
		}
		for _, m := range d.Messages {
			if m.Direction != "to_broker" {
				c.fits(d, m.Named, "message", m.Fields, 0, limit)
			}
		}
	}
	for _, e := range c.spec.Wire.Envelopes {
		c.fits(nil, e.Named, "envelope", e.Fields, 1, limit)
	}
}

// fits reports a value whose largest size, of what can be computed, is above a limit.
func (c *checker) fits(d *model.Domain, n model.Named, what string, fields []*model.Field, status int64, limit *model.Bound) {
	size, known := c.largestOf(d, fields)
	if known && size+status > limit.Default {
		c.add(n.Pos, fmt.Sprintf("the largest %s of %s has %d bytes, and %s is %d", what, n.Name, size+status, limit.Name, limit.Default), "lower a bound of its fields")
	}
}

// huge is where sizes stop growing, so that no bound makes them overflow: far above every limit.
const huge = 1 << 40

// largestOf is the largest size of a list of fields in bytes; false when a bound is missing, which other rules report.
func (c *checker) largestOf(d *model.Domain, fields []*model.Field) (int64, bool) {
	var sum int64
	for _, f := range fields {
		size, ok := c.largestField(d, f, fields)
		if !ok {
			return 0, false
		}
		sum = min(sum+min(size, huge), huge)
	}
	return sum, true
}

func (c *checker) largestField(d *model.Domain, f *model.Field, group []*model.Field) (int64, bool) {
	var size int64
	ok := true
	switch {
	case f.Elem != "":
		size, ok = c.largestList(d, f)
	case text[f.Type] || f.Type == "endpoint":
		size, ok = c.largestText(f, group)
	default:
		size, ok = c.largestType(d, f.Type)
	}
	if f.Length != "" {
		bound := c.spec.Bound(f.Bound)
		if bound == nil {
			return 0, false
		}
		size = int64(bits[f.Length] / 8)
		if !c.fills(f.Bound) {
			size += bound.Default
		}
	}
	if f.Presence.Kind == model.Flagged || f.Presence.Kind == model.TailFlagged {
		size++
	}
	return size, ok
}

// fills tells whether a bound is that of the whole value: what has it takes what the other fields leave, so its least size counts.
func (c *checker) fills(bound string) bool {
	return bound != "" && (bound == c.spec.Wire.Framing.LengthMax || bound == c.spec.Wire.Framing.ReplyMax)
}

// largestText is the size of a text at its bound. What a bound loses to other fields of the value is not counted twice.
func (c *checker) largestText(f *model.Field, group []*model.Field) (int64, bool) {
	name := f.Bound
	if f.Type == "endpoint" {
		name = f.MaxBytes
	}
	b := c.spec.Bound(name)
	if b == nil {
		return 0, false
	}
	if c.fills(name) {
		return int64(bits["u32"] / 8), true
	}
	size := b.Default
	for _, other := range group {
		if o := c.spec.Bound(other.Bound); o != nil && slices.Contains(b.Minus, other.Name) {
			size -= o.Default
		}
	}
	if f.Presence.Kind == model.Rest {
		return size, true
	}
	return size + int64(bits["u32"]/8), true
}

func (c *checker) largestType(d *model.Domain, t string) (int64, bool) {
	if n := width(d, t); n > 0 {
		return int64(n+7) / 8, true
	}
	if t == "uuid" {
		return 16, true
	}
	groups := composite(d, t)
	if groups == nil {
		return 0, false
	}
	key := d.Name + "." + t
	if size, ok := c.sizes[key]; ok {
		return size, size >= 0
	}
	c.sizes[key] = -1 // as long as it is not known, which is for good when it contains itself
	size, ok := c.largestGroup(d, groups)
	if !ok {
		return 0, false
	}
	if u := d.Union(t); u != nil {
		size += int64(bits[u.Tag] / 8)
	}
	c.sizes[key] = size
	return size, true
}

// largestGroup is the size of the largest of several lists of fields.
func (c *checker) largestGroup(d *model.Domain, groups [][]*model.Field) (int64, bool) {
	var most int64
	for _, group := range groups {
		size, ok := c.largestOf(d, group)
		if !ok {
			return 0, false
		}
		most = max(most, size)
	}
	return most, true
}

// largestList is the size of a list: its byte bound where it has one, else its members at their largest.
func (c *checker) largestList(d *model.Domain, f *model.Field) (int64, bool) {
	count := c.spec.Bound(f.Bound)
	if count == nil {
		return 0, false
	}
	var around int64
	switch f.Form {
	case "counted":
		around = int64(bits[f.Count] / 8)
	case "flagged":
		around = count.Default + 1
	}
	if c.fills(f.Bytes) {
		return around, true
	}
	if b := c.spec.Bound(f.Bytes); b != nil {
		return around + b.Default, true
	}
	if text[f.Elem] {
		return 0, false
	}
	size, ok := c.largestType(d, f.Elem)
	return around + min(count.Default, huge/(size+1))*size, ok
}
