package rules

import (
	"fmt"
	"slices"

	"github.com/fitzwire/fitz/codegen/model"
)

var messageRules = []Rule{
	{"MESSAGE_NUMBER", "A message number means one thing in each direction.", messageNumbers},
	{"MESSAGE_RANGE", "The numbers of a domain are its hundred and its extra numbers.", messageRanges},
	{"MESSAGE_RESERVED", "A reserved number is used only with the capability that it waits for.", messageReserved},
	{"MESSAGE_CLASS", "A message belongs to exactly one class, and a class has its direction and its fields (invariant 5).", messageClasses},
	{"DOMAIN_NUMBER", "A domain has its own number, name and ranges.", domainNumbers},
	{"RANGE_ORDER", "A range goes upwards, and ranges of one kind do not overlap.", rangeOrder},
	{"OPERATION_ERRORS", "An operation lists every code that dispatch and its fields can answer.", operationErrors},
	{"OPERATION_FAULTS", "Every mistake that is found before the domain is asked has an answer.", operationFaults},
	{"OPERATION_ACCESS", "The permission names a route of the request as exact or a selector as contained.", operationAccess},
	{"OPERATION_DEFERRED", "A deferred reply hangs on values of an enumeration in the reply.", operationDeferred},
	{"OPERATION_PAGED", "A listing names a cursor that goes in and comes out, and a list.", operationPaged},
	{"OPERATION_REGISTERS", "A subscription names a push that carries its id.", operationRegisters},
	{"OPERATION_IDEMPOTENT", "What makes two requests the same is the session or a field.", operationIdempotent},
	{"ANSWERED_BY", "What answers a message exists and can answer it.", answeredBy},
}

// use is one direction of a message number.
type use struct {
	number int
	name   string // domain.message
	pos    model.Pos
}

// uses returns the numbers of the messages that travel in one direction.
func (c *checker) uses(toBroker bool) []use {
	var out []use
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			if toBroker || op.AnsweredBy == "" {
				out = append(out, use{op.Number, d.Name + "." + op.Name, op.Where("message")})
			}
		}
		for _, m := range d.Messages {
			if m.Direction == "both" || (m.Direction == "to_broker") == toBroker {
				out = append(out, use{m.Number, d.Name + "." + m.Name, m.Where("message")})
			}
		}
	}
	return out
}

func messageNumbers(c *checker) {
	for _, toBroker := range []bool{true, false} {
		seen := map[int]use{}
		for _, u := range c.uses(toBroker) {
			if first, ok := seen[u.number]; ok {
				c.add(u.pos, fmt.Sprintf("%s has the number %d of %s", u.name, u.number, first.name), "give it a number of its own")
				continue
			}
			seen[u.number] = u
		}
	}
}

func (c *checker) eachNumber(visit func(d *model.Domain, number int, needs string, pos model.Pos)) {
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			visit(d, op.Number, op.Needs, op.Where("message"))
		}
		for _, m := range d.Messages {
			visit(d, m.Number, m.Needs, m.Where("message"))
		}
	}
}

func messageRanges(c *checker) {
	c.eachNumber(func(d *model.Domain, number int, _ string, pos model.Pos) {
		if number/100 == d.Number && !c.extraOfOther(d, number) || within(d.Extra, number) {
			return
		}
		c.add(pos, fmt.Sprintf("%d is not a number of the domain %s", number, d.Name),
			fmt.Sprintf("use one from %d to %d or of extra_numbers, which no other domain has", d.Number*100, d.Number*100+99))
	})
}

func within(ranges []*model.ReservedRange, number int) bool {
	return slices.ContainsFunc(ranges, func(r *model.ReservedRange) bool { return r.From <= number && number <= r.To })
}

// extraOfOther tells whether a number of the hundred of d is an extra number of another domain.
func (c *checker) extraOfOther(d *model.Domain, number int) bool {
	return slices.ContainsFunc(c.spec.Domains, func(o *model.Domain) bool { return o != d && within(o.Extra, number) })
}

func messageReserved(c *checker) {
	c.eachNumber(func(_ *model.Domain, number int, needs string, pos model.Pos) {
		for _, r := range c.spec.Wire.Reserved {
			if r.From <= number && number <= r.To && needs != r.For {
				c.add(pos, fmt.Sprintf("%d is reserved for %s", number, r.For), "use another number, or say that the message needs "+r.For)
			}
		}
	})
}

// direction is the direction that each class of message may have; control messages may have any.
var direction = map[string][]string{
	"control": {"to_broker", "to_client", "both"},
	"push":    {"to_client"},
	"reply":   {"to_broker", "to_client", "both"}, // a client that serves requests replies too
}

func messageClasses(c *checker) {
	for _, d := range c.spec.Domains {
		for _, m := range d.Messages {
			if allowed := direction[m.Class]; allowed != nil && !slices.Contains(allowed, m.Direction) {
				c.add(m.Where("direction"), fmt.Sprintf("a message of class %s cannot go %s", m.Class, m.Direction), "change the class or the direction")
			}
			if m.Overflow != "" && m.Class != "push" {
				c.add(m.Where("overflow"), fmt.Sprintf("a message of class %s is never dropped", m.Class), "remove overflow or make it a push")
			}
			if m.Class == "push" && m.AnsweredBy != "" {
				c.add(m.Where("answered_by"), "a push is not answered", "remove answered_by: a reply acknowledges nothing")
			}
		}
	}
	for _, p := range c.fields {
		reply := p.kind == inReply || p.kind == inEnvelope || p.msg != nil && p.msg.Class == "reply"
		push := p.msg != nil && p.msg.Class == "push"
		if (reply || push) && (p.Role == "correlation" || p.Role == "acknowledgement") {
			c.add(p.Where("role"), fmt.Sprintf("the field %s of %s carries the role %s, which belongs to control messages", p.Name, p.owner.Name, p.Role),
				"carry it in a control message: a reply is no acknowledgement and a label stands in front of it")
		}
		if p.kind == inRequest && p.Role == "acknowledgement" {
			c.add(p.Where("role"), fmt.Sprintf("the request %s acknowledges something", p.owner.Name), "acknowledge with a control message")
		}
	}
}

func domainNumbers(c *checker) {
	seen := map[int]string{}
	names := map[string]bool{}
	for _, d := range c.spec.Domains {
		if first, ok := seen[d.Number]; ok {
			c.add(d.Where("number"), fmt.Sprintf("the domain %s has the number %d of %s", d.Name, d.Number, first), "give it a number of its own")
		}
		if names[d.Name] {
			c.add(d.Where("domain"), fmt.Sprintf("the domain %s is described twice", d.Name), "rename one")
		}
		seen[d.Number], names[d.Name] = d.Name, true
	}
}

// span is a range of any kind.
type span struct {
	pos      model.Pos
	from, to int64
}

func rangeOrder(c *checker) {
	var reserved, codes, extra []span
	for _, r := range c.spec.Wire.Reserved {
		reserved = append(reserved, span{r.Pos, int64(r.From), int64(r.To)})
	}
	for _, r := range c.spec.CodeRanges {
		codes = append(codes, span{r.Pos, int64(r.From), int64(r.To)})
	}
	for _, d := range c.spec.Domains {
		for _, r := range d.Extra {
			extra = append(extra, span{r.Pos, int64(r.From), int64(r.To)})
		}
	}
	for _, group := range [][]span{reserved, codes, extra} {
		c.spans(group)
	}
	b := c.spec.Broker
	if b.HelloDelayMin > b.HelloDelayMax {
		c.add(b.Pos, fmt.Sprintf("hello_delay_ms goes from %d down to %d", b.HelloDelayMin, b.HelloDelayMax), "swap the two")
	}
}

func (c *checker) spans(group []span) {
	for i, r := range group {
		if r.from > r.to {
			c.add(r.pos, fmt.Sprintf("the range goes from %d down to %d", r.from, r.to), "swap the two")
		}
		for _, o := range group[:i] {
			if r.from <= o.to && o.from <= r.to {
				c.add(r.pos, fmt.Sprintf("the range from %d to %d overlaps the one of line %d", r.from, r.to, o.pos.Line), "keep them apart")
			}
		}
	}
}

func (c *checker) eachOperation(visit func(d *model.Domain, op *model.Operation)) {
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			visit(d, op)
		}
	}
}

// hasRoute tells whether a list of fields holds a route or selector, also within structs.
func hasRoute(d *model.Domain, fields []*model.Field) bool {
	seen := visited{}
	var holds func(f *model.Field) bool
	holds = func(f *model.Field) bool { return isRoute(element(f)) || seen.anyField(d, element(f), holds) }
	return slices.ContainsFunc(fields, holds)
}

func operationErrors(c *checker) {
	c.eachOperation(func(d *model.Domain, op *model.Operation) {
		need := func(code, why string) {
			if c.spec.Error(code) != nil && !slices.Contains(op.Errors, code) {
				c.add(op.Where("errors"), fmt.Sprintf("the operation %s can answer %s (%s) and does not list it", op.Name, code, why), "add it to errors")
			}
		}
		need(op.Faults.Malformed, "a malformed request")
		if hasRoute(d, op.Request) {
			need(op.Faults.Route, "a route that does not fit the grammar")
		}
		if op.Access != nil && op.Access.Level != "session" {
			need(op.Faults.Denied, "a caller without permission")
		}
		need(op.Faults.NotAccepted, "a domain that is full")
		for _, f := range op.Request {
			need(f.Code, "the field "+f.Name)
			c.boundCodes(f, need)
		}
	})
}

// boundCodes asks for the codes of the bounds of one field.
func (c *checker) boundCodes(f *model.Field, need func(code, why string)) {
	if f.Code != "" || isRoute(f.Type) {
		return // the field or the grammar says what is answered
	}
	names := []string{f.Bound}
	if f.Max != nil {
		names = append(names, f.Max.Bound)
	}
	for _, name := range names {
		b := c.spec.Bound(name)
		if b == nil || b.Reaction != "refuse" {
			continue
		}
		for _, code := range b.Codes {
			need(code, "the bound "+name)
		}
	}
}

func operationFaults(c *checker) {
	c.eachOperation(func(d *model.Domain, op *model.Operation) {
		missing := func(what string) {
			c.add(op.Pos, fmt.Sprintf("nothing says what answers %s of %s", what, op.Name), "add it to the faults of the operation or of the domain")
		}
		if op.Faults.Malformed == "" {
			missing("a malformed request")
		}
		if op.Faults.Route == "" && hasRoute(d, op.Request) {
			missing("a bad route")
		}
		if op.Faults.Denied == "" && op.Access != nil && op.Access.Level != "session" {
			missing("a caller without permission")
		}
		if op.Faults.NotAccepted == "" {
			missing("a request that cannot be taken")
		}
	})
	for _, d := range c.spec.Domains {
		for _, m := range d.Messages {
			if m.Direction != "to_client" && m.Malformed == "" && d.Faults.Malformed == "" {
				c.add(m.Pos, fmt.Sprintf("nothing says what answers a malformed %s", m.Name), "add malformed to the message or to the faults of the domain")
			}
		}
	}
}

func operationAccess(c *checker) {
	c.eachOperation(func(_ *model.Domain, op *model.Operation) {
		a := op.Access
		if a == nil {
			return
		}
		if a.Level == "session" || a.As == "everything" {
			if a.On != "" || a.Level == "session" && a.As != "" {
				c.add(a.Pos, "a permission of the session or on everything names no field", "remove on and, for session, as")
			}
			return
		}
		want := map[string]string{"exact": "route", "contained": "selector"}[a.As]
		f := fieldNamed(op.Request, a.On)
		switch {
		case a.On == "" || want == "":
			c.add(a.Pos, "the permission does not say on what", "give on and as")
		case f == nil:
			c.add(op.Where("access/on"), fmt.Sprintf("the request has no field %s", a.On), "name a field of the request")
		case f.Type != want:
			c.add(op.Where("access/as"), fmt.Sprintf("a permission that is %s is on a field of type %s; %s is %s", a.As, want, a.On, f.Type), "change as or the type")
		}
	})
}

func operationDeferred(c *checker) {
	c.eachOperation(func(d *model.Domain, op *model.Operation) {
		if op.Deferred == nil {
			return
		}
		if target := d.Operation(op.Deferred.Reply); target == nil {
			c.add(op.Where("deferred/reply"), fmt.Sprintf("there is no operation %s", op.Deferred.Reply), "name an operation of the domain")
		}
		f := fieldNamed(op.Reply, op.Deferred.Field)
		if f == nil {
			c.add(op.Where("deferred/field"), fmt.Sprintf("the reply has no field %s", op.Deferred.Field), "name a field of the reply")
			return
		}
		e := d.Enum(f.Type)
		if e == nil {
			c.add(op.Where("deferred/field"), fmt.Sprintf("the field %s is no enumeration", f.Name), "name a field whose type is one")
			return
		}
		for i, name := range op.Deferred.After {
			if !slices.ContainsFunc(e.Values, func(v *model.EnumValue) bool { return v.Name == name }) {
				c.add(op.Where(fmt.Sprintf("deferred/after/%d", i)), fmt.Sprintf("%s has no value %s", e.Name, name), "name a value of it")
			}
		}
	})
}

func operationPaged(c *checker) {
	c.eachOperation(func(_ *model.Domain, op *model.Operation) {
		if op.Paged == nil {
			return
		}
		by, items, next := fieldNamed(op.Request, op.Paged.By), fieldNamed(op.Reply, op.Paged.Items), fieldNamed(op.Reply, op.Paged.Next)
		if by == nil {
			c.add(op.Where("paged/by"), fmt.Sprintf("the request has no field %s", op.Paged.By), "name a field of the request")
		}
		if items == nil || items.Elem == "" {
			c.add(op.Where("paged/items"), fmt.Sprintf("the reply has no list %s", op.Paged.Items), "name a list of the reply")
		}
		if next == nil {
			c.add(op.Where("paged/next"), fmt.Sprintf("the reply has no field %s", op.Paged.Next), "name a field of the reply")
		}
		if by != nil && next != nil && by.Type != next.Type {
			c.add(op.Where("paged"), fmt.Sprintf("%s goes in as %s and comes out as %s", by.Name, by.Type, next.Type), "use one type")
		}
	})
}

func operationRegisters(c *checker) {
	isID := func(f *model.Field) bool { return f.Role == "registration" }
	c.eachOperation(func(d *model.Domain, op *model.Operation) {
		if op.Registers == "" {
			return
		}
		m := d.Message(op.Registers)
		switch {
		case m == nil || m.Class != "push":
			c.add(op.Where("registers"), fmt.Sprintf("there is no push %s", op.Registers), "name a push of the domain")
		case !slices.ContainsFunc(op.Reply, isID) || !slices.ContainsFunc(m.Fields, isID):
			c.add(op.Where("registers"), fmt.Sprintf("the reply of %s and the push %s do not both carry the id of the registration", op.Name, m.Name), "give both a field with the role registration")
		}
	})
}

func operationIdempotent(c *checker) {
	c.eachOperation(func(_ *model.Domain, op *model.Operation) {
		for i, name := range op.Idempotent {
			if name != "session" && fieldNamed(op.Request, name) == nil {
				c.add(op.Where(fmt.Sprintf("idempotent/by/%d", i)), fmt.Sprintf("the request has no field %s", name), "name session or a field of the request")
			}
		}
	})
}

func answeredBy(c *checker) {
	for _, d := range c.spec.Domains {
		answers := map[string]bool{}
		for _, op := range d.Operations {
			answers[op.AnsweredBy] = true
			m := d.Message(op.AnsweredBy)
			switch {
			case op.AnsweredBy == "":
			case m == nil || m.Class != "reply":
				c.add(op.Where("answered_by"), fmt.Sprintf("there is no message %s of class reply", op.AnsweredBy), "name one of the domain")
			case !op.NoReply:
				c.add(op.Where("reply"), fmt.Sprintf("%s has a reply of its own and is answered by %s too", op.Name, m.Name), "write reply: none")
			}
		}
		for _, m := range d.Messages {
			if m.AnsweredBy != "" && d.Message(m.AnsweredBy) == nil {
				c.add(m.Where("answered_by"), fmt.Sprintf("there is no message %s", m.AnsweredBy), "name a message of the domain")
			}
			if m.Class == "reply" && m.Direction != "to_broker" && !answers[m.Name] {
				c.add(m.Where("class"), fmt.Sprintf("no operation is answered by %s", m.Name), "name it in answered_by of the operation that it answers")
			}
		}
	}
}
