package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

var wireRules = []Rule{
	{"CAPABILITY_UNKNOWN", "Every capability that is named exists.", capabilityUnknown},
	{"CAPABILITY_NEEDED", "Nothing that is built needs a capability that is not announced (invariant 12).", capabilityNeeded},
	{"CAPABILITY_BITS", "A capability has its own bit; one that is announced has what it needs, one that is not says what it waits for.", capabilityBits},
	{"ANSWER_FORM", "An operation names an answer form, and a form names envelopes of refusals.", answerForms},
	{"ENVELOPE_STATUS", "A success starts with another byte than every refusal.", envelopeStatus},
	{"LABEL_MESSAGE", "Labels are control messages that hold one correlation id.", labelMessages},
	{"CLOSE_REASON", "A close reason fits its bound and has a close code of WebSocket.", closeReasons},
	{"FIXED_TEXT", "The placeholders of a fixed text stand in braces, and a limit has its bound.", fixedTexts},
	{"ROUTE_REASON", "A reason with a fixed text names one that exists.", routeReasons},
	{"SCHEME_DEPTH", "The segments and shapes of a scheme have its depth.", schemeDepths},
	{"FRAMING_TYPE", "The types of a header hold what they announce.", framingTypes},
}

func capabilityUnknown(c *checker) {
	check := func(name string, pos model.Pos) {
		if name != "" && c.spec.Capability(name) == nil {
			c.add(pos, fmt.Sprintf("there is no capability %s", name), "correct the name or add the capability")
		}
	}
	for _, k := range c.spec.Wire.Capabilities {
		check(k.Needs, k.Where("needs"))
	}
	for _, r := range c.spec.Wire.Reserved {
		check(r.For, r.Pos)
	}
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			check(op.Needs, op.Where("needs"))
		}
		for _, m := range d.Messages {
			check(m.Needs, m.Where("needs"))
		}
	}
	for _, p := range c.fields {
		check(p.Presence.Bit, p.Where("presence/when/bit"))
	}
}

func capabilityNeeded(c *checker) {
	check := func(name, what string, pos model.Pos) {
		if k := c.spec.Capability(name); k != nil && !k.Announced {
			c.add(pos, fmt.Sprintf("%s needs %s, which is not announced", what, name), "announce it or leave the part out until it is")
		}
	}
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			check(op.Needs, op.Name, op.Where("needs"))
		}
		for _, m := range d.Messages {
			check(m.Needs, m.Name, m.Where("needs"))
		}
	}
	for _, p := range c.fields {
		check(p.Presence.Bit, p.Name, p.Where("presence/when/bit"))
	}
}

func capabilityBits(c *checker) {
	seen := map[int]string{}
	for _, k := range c.spec.Wire.Capabilities {
		if first, ok := seen[k.Bit]; ok {
			c.add(k.Where("bit"), fmt.Sprintf("%s has the bit %d of %s", k.Name, k.Bit, first), "give it a bit of its own")
		}
		seen[k.Bit] = k.Name
		if needs := c.spec.Capability(k.Needs); needs != nil && k.Announced && !needs.Announced {
			c.add(k.Where("announced"), fmt.Sprintf("%s is announced without %s, which it needs", k.Name, k.Needs), "announce both or none")
		}
		if k.Announced == (k.WaitsFor != "") {
			c.add(k.Where("announced"), fmt.Sprintf("%s is either announced or waits for something", k.Name), "give announced: true, or announced: false with waits_for")
		}
	}
}

func answerForms(c *checker) {
	for _, f := range c.spec.Wire.Forms {
		for key, name := range map[string]string{"unlabelled": f.Unlabelled, "labelled": f.Labelled, "ingress_labelled": f.IngressLabelled, "negotiated": f.Negotiated} {
			e := c.spec.Envelope(name)
			if e == nil || e.Name == "success" {
				c.add(f.Where(key), fmt.Sprintf("%s is no envelope of a refusal", name), "name one of envelopes")
			}
		}
	}
	c.eachOperation(func(_ *model.Domain, op *model.Operation) {
		if f := c.spec.Form(op.Envelope); f == nil || f.Carried != (op.AnsweredBy != "") {
			c.add(op.Where("envelope"), fmt.Sprintf("%s is no answer form for %s", op.Envelope, op.Name), "name one of answer_forms; one that is carried belongs to an operation with answered_by")
		}
	})
}

func envelopeStatus(c *checker) {
	success := c.spec.Envelope("success")
	for _, e := range c.spec.Wire.Envelopes {
		if success != nil && e != success && e.Status == success.Status {
			c.add(e.Where("status"), fmt.Sprintf("the refusal %s starts like a success", e.Name), "use another byte")
		}
	}
}

func labelMessages(c *checker) {
	for key, name := range map[string]string{c.spec.Wire.LabelRequest: "to_broker", c.spec.Wire.LabelReply: "to_client"} {
		if !slices.ContainsFunc(c.spec.Domains, func(d *model.Domain) bool { return isLabel(d.Message(key), name) }) {
			c.add(c.spec.Wire.Pos, fmt.Sprintf("%s is no control message %s that holds one id with the role correlation", key, name), "name one in label")
		}
	}
}

func isLabel(m *model.Message, direction string) bool {
	return m != nil && m.Class == "control" && m.Direction == direction && len(m.Fields) == 1 && m.Fields[0].Role == "correlation"
}

// registered tells whether a WebSocket close code may be sent.
func registered(code int) bool {
	switch code {
	case 1004, 1005, 1006, 1015:
		return false
	}
	return code >= 1000 && code <= 1014 || code >= 3000 && code <= 4999
}

func closeReasons(c *checker) {
	limit := c.spec.Bound(c.spec.Wire.CloseTextMax)
	for _, r := range c.spec.Wire.CloseReasons {
		if limit != nil && int64(len(r.Text)) > limit.Default {
			c.add(r.Where("text"), fmt.Sprintf("the text of %s has %d bytes, and %s is %d", r.Name, len(r.Text), limit.Name, limit.Default), "shorten it")
		}
		if !registered(r.WebSocket) {
			c.add(r.Where("websocket"), fmt.Sprintf("%d is no close code that may be sent", r.WebSocket), "use one from 1000 to 1003, 1007 to 1014 or 3000 to 4999")
		}
	}
}

var placeholder = regexp.MustCompile(`\{[a-z][a-z0-9_]*\}`)

func fixedTexts(c *checker) {
	for _, t := range c.spec.Wire.FixedTexts {
		if strings.ContainsAny(placeholder.ReplaceAllString(t.Text, ""), "{}") {
			c.add(t.Where("text"), fmt.Sprintf("a brace of %s belongs to no placeholder", t.Name), "write {name}")
		}
		if strings.Contains(t.Text, "{limit}") != (t.Bound != "") {
			c.add(t.Pos, fmt.Sprintf("the placeholder {limit} and the bound of %s go together", t.Name), "give both or none")
		}
	}
}

func routeReasons(c *checker) {
	for _, r := range c.spec.Routes.Reasons {
		if r.FixedText != "" && c.spec.FixedText(r.FixedText) == nil {
			c.add(r.Where("fixed_text"), fmt.Sprintf("there is no fixed text %s", r.FixedText), "correct the name or add the text")
		}
	}
}

func schemeDepths(c *checker) {
	for _, s := range c.spec.Routes.Schemes {
		if len(s.Segments) != s.Depth {
			c.add(s.Where("segments"), fmt.Sprintf("%s has the depth %d and names %d segments", s.Name, s.Depth, len(s.Segments)), "name each segment; a flexible scheme names none")
		}
		for i, shape := range s.Shapes {
			if n := strings.Count(shape, "/") + 1; !strings.Contains(shape, "**") && n != s.Depth {
				c.add(s.Where(fmt.Sprintf("shapes/%d", i)), fmt.Sprintf("the shape %s has %d segments, and %s has the depth %d", shape, n, s.Name, s.Depth), "correct the shape")
			}
		}
		if s.ReservedFrom >= s.Depth && len(s.Reserved) > 0 {
			c.add(s.Where("reserved/from"), fmt.Sprintf("%s has no segment %d", s.Name, s.ReservedFrom), "count segments from 0")
		}
	}
}

func framingTypes(c *checker) {
	f := c.spec.Wire.Framing
	for _, x := range []struct{ t, bound string }{{f.PrefixType, f.PrefixMax}, {f.PrefixType, f.PrefixSentMax}, {f.LengthType, f.LengthMax}} {
		b := c.spec.Bound(x.bound)
		if b == nil || bits[x.t] == 0 {
			continue
		}
		if uint64(b.Default) > largest(bits[x.t]).Uint64() {
			c.add(f.Pos, fmt.Sprintf("%s is %d, which does not fit %s", b.Name, b.Default, x.t), "use a larger type or a smaller bound")
		}
	}
	if narrow, wide := bits[f.NarrowType], bits[f.WideType]; narrow >= wide || uint64(f.Escape) != largest(narrow).Uint64() {
		c.add(f.Pos, "the escape is not the largest number of the narrow type, or the wide type is not wider", "correct record.type")
	}
}
