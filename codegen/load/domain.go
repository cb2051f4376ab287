package load

import (
	"cmp"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

// domain turns one domain file into the model.
func domain(file node) *model.Domain {
	name := file.get("domain")
	d := &model.Domain{
		Named:  named(name.str(), file, file),
		Number: int(file.get("number").integer()),
		Extra:  list(file.get("extra_numbers"), numberRange),
		Scheme: file.get("routes").str(),
		Faults: faults(file.get("faults")),
		Enums:  rows(file.get("enums"), enum),
		Structs: rows(file.get("structs"), func(k, v node) *model.Struct {
			return &model.Struct{Named: named(k.str(), k, v), Fields: list(v.get("fields"), field), Clauses: v.get("clauses").strings()}
		}),
		Unions:   rows(file.get("unions"), union),
		Messages: rows(file.get("messages"), message),
		Reasons:  rows(file.get("reasons"), reasonTable),
	}
	d.Operations = rows(file.get("operations"), func(k, v node) *model.Operation { return operation(k, v, d.Faults) })
	resolveDefaults(d)
	return d
}

func faults(v node) model.Faults {
	f := model.Faults{
		Malformed:   fault(v.get("malformed")),
		Route:       fault(v.get("route")),
		Denied:      fault(v.get("denied")),
		NotAccepted: fault(v.get("not_accepted")),
	}
	f.Pos = v.pos()
	return f
}

// fault is the name of a code, drop, or close:<reason>.
func fault(v node) string {
	if reason := v.get("close").str(); reason != "" {
		return "close:" + reason
	}
	return v.str()
}

// merged is the faults of an operation: what it does not say is that of its domain.
func merged(own, domain model.Faults) model.Faults {
	out := model.Faults{
		Pos:         domain.Pos,
		Malformed:   cmp.Or(own.Malformed, domain.Malformed),
		Route:       cmp.Or(own.Route, domain.Route),
		Denied:      cmp.Or(own.Denied, domain.Denied),
		NotAccepted: cmp.Or(own.NotAccepted, domain.NotAccepted),
	}
	if own.Pos.Line > 0 {
		out.Pos = own.Pos
	}
	return out
}

func enum(k, v node) *model.Enum {
	return &model.Enum{
		Named:  named(k.str(), k, v),
		Type:   v.get("type").str(),
		Closed: v.get("closed").boolean(),
		Values: rows(v.get("values"), func(k, v node) *model.EnumValue {
			return &model.EnumValue{Named: named(k.str(), k, v), Value: v.get("value").uint(64)}
		}),
	}
}

func union(k, v node) *model.Union {
	return &model.Union{
		Named:   named(k.str(), k, v),
		Tag:     v.get("tag").str(),
		Clauses: v.get("clauses").strings(),
		Variants: rows(v.get("variants"), func(k, v node) *model.Variant {
			return &model.Variant{Named: named(k.str(), k, v), Value: v.get("value").uint(64), Fields: list(v.get("fields"), field)}
		}),
	}
}

func operation(k, v node, domain model.Faults) *model.Operation {
	op := &model.Operation{
		Named:      named(k.str(), k, v),
		Number:     int(v.get("message").integer()),
		SDKName:    cmp.Or(v.get("sdk_name").str(), k.str()),
		Faults:     merged(faults(v.get("faults")), domain),
		Request:    list(v.get("request"), field),
		Reply:      list(v.get("reply"), field),
		NoReply:    v.get("reply").str() == "none",
		AnsweredBy: v.get("answered_by").str(),
		Errors:     v.get("errors").strings(),
		ReadOnly:   v.get("read_only").boolean(),
		Idempotent: v.path("idempotent", "by").strings(),
		Registers:  v.get("registers").str(),
		Envelope:   v.get("envelope").str(),
		Needs:      v.get("needs").str(),
		Clauses:    v.get("clauses").strings(),
	}
	if a := v.get("access"); a.exists() {
		op.Access = &model.Access{Pos: a.pos(), Level: a.get("level").str(), On: a.get("on").str(), As: a.get("as").str()}
	}
	if d := v.get("deferred"); d.exists() {
		op.Deferred = &model.Deferred{
			Pos:         d.pos(),
			Field:       d.get("field").str(),
			After:       d.get("after").strings(),
			Reply:       d.get("reply").str(),
			Cancellable: d.get("cancellable").boolean(),
		}
	}
	if p := v.get("paged"); p.exists() {
		op.Paged = &model.Paged{Pos: p.pos(), By: p.get("by").str(), Items: p.get("items").str(), Next: p.get("next").str()}
	}
	return op
}

func message(k, v node) *model.Message {
	return &model.Message{
		Named:        named(k.str(), k, v),
		Number:       int(v.get("message").integer()),
		Class:        v.get("class").str(),
		Direction:    v.get("direction").str(),
		Needs:        v.get("needs").str(),
		AnsweredBy:   v.get("answered_by").str(),
		Malformed:    fault(v.get("malformed")),
		LaterIgnored: v.get("later_bytes").str() == "ignored",
		Overflow:     v.get("overflow").str(),
		Fields:       list(v.get("fields"), field),
		Clauses:      v.get("clauses").strings(),
	}
}

func reasonTable(k, v node) *model.ReasonTable {
	return &model.ReasonTable{
		Named: named(k.str(), k, v),
		Code:  v.get("code").str(),
		Values: rows(v.get("values"), func(k, v node) *model.ReasonValue {
			return &model.ReasonValue{Named: named(k.str(), k, v), Text: v.get("text").str(), Clause: v.get("clause").str()}
		}),
	}
}

func field(v node) *model.Field {
	f := &model.Field{
		Named:        named(v.get("name").str(), v, v),
		Type:         v.get("type").str(),
		Unit:         v.get("unit").str(),
		Format:       v.get("format").str(),
		Role:         v.get("role").str(),
		Bound:        v.get("bound").str(),
		Bytes:        v.get("bytes").str(),
		Min:          v.get("min").number(),
		Max:          v.get("max").number(),
		Above:        v.get("above").str(),
		Text:         v.get("text").str(),
		Code:         v.get("code").str(),
		Default:      v.get("default").number(),
		Const:        v.get("const").number(),
		Nonzero:      v.get("nonzero").boolean(),
		Late:         v.get("late").boolean(),
		Length:       v.get("length").str(),
		LaterIgnored: v.get("later_bytes").str() == "ignored",
		MaxBytes:     v.get("max_bytes").str(),
		Presence:     presence(v.get("presence")),
	}
	if inner, ok := strings.CutPrefix(f.Type, "list<"); ok {
		f.Elem = strings.TrimSuffix(inner, ">")
		f.Form = cmp.Or(v.get("form").str(), "counted")
		if f.Form == "counted" {
			f.Count = cmp.Or(v.get("count").str(), "u32")
		}
	}
	return f
}

func presence(v node) model.Presence {
	switch v.str() {
	case "flag":
		return model.Presence{Kind: model.Flagged}
	case "tail":
		return model.Presence{Kind: model.Tail}
	case "tail_flag":
		return model.Presence{Kind: model.TailFlagged}
	case "rest":
		return model.Presence{Kind: model.Rest}
	}
	if when := v.get("when"); when.exists() {
		return model.Presence{Kind: model.PresentWhen, Field: when.get("field").str(), Bit: when.get("bit").str()}
	}
	return model.Presence{}
}

// resolveDefaults turns defaults and constants that name a value of their enumeration into its number.
func resolveDefaults(d *model.Domain) {
	for _, f := range d.AllFields() {
		e := d.Enum(f.Type)
		if e == nil {
			continue
		}
		for _, n := range []*model.Number{f.Default, f.Const} {
			resolve(n, e)
		}
	}
}

func resolve(n *model.Number, e *model.Enum) {
	if n == nil || n.Bound == "" {
		return
	}
	for _, v := range e.Values {
		if v.Name == n.Bound {
			n.Enum, n.Bound, n.Value = v.Name, "", v.Big()
		}
	}
}
