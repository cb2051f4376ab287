package rules

import (
	"fmt"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

var errorRules = []Rule{
	{"ERROR_UNKNOWN", "Every code that is named exists.", errorUnknown},
	{"ERROR_NUMBER", "A code has its own number, from the range of its domain.", errorNumbers},
	{"ERROR_OUTCOME", "What answers a request says what became of it.", errorOutcomes},
	{"ERROR_CLASS", "Classes form one tree; every code names a class, and every leaf is named.", errorClasses},
	{"CLOSE_REASON_UNKNOWN", "Every close reason that is named exists.", closeReasonUnknown},
}

func errorUnknown(c *checker) {
	check := func(name string, pos model.Pos) {
		if name != "" && name != "drop" && !strings.HasPrefix(name, "close:") && c.spec.Error(name) == nil {
			c.add(pos, fmt.Sprintf("there is no code %s", name), "correct the name or add the code")
		}
	}
	c.eachFault(check)
	for _, b := range c.spec.Bounds {
		for i, name := range b.Codes {
			check(name, b.Where(fmt.Sprintf("codes/%d", i)))
		}
	}
	for _, p := range c.fields {
		check(p.Code, p.Where("code"))
	}
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			for i, name := range op.Errors {
				check(name, op.Where(fmt.Sprintf("errors/%d", i)))
			}
		}
		for _, r := range d.Reasons {
			check(r.Code, r.Where("code"))
		}
	}
}

// eachFault visits every fault of domains, operations and messages, where it was written.
func (c *checker) eachFault(visit func(fault string, pos model.Pos)) {
	for _, d := range c.spec.Domains {
		each := func(n model.Named, f model.Faults) {
			for key, fault := range map[string]string{"malformed": f.Malformed, "route": f.Route, "denied": f.Denied, "not_accepted": f.NotAccepted} {
				if pos, ok := n.At["faults/"+key]; ok {
					visit(fault, pos)
				}
			}
		}
		each(d.Named, d.Faults)
		for _, op := range d.Operations {
			each(op.Named, op.Faults)
		}
		for _, m := range d.Messages {
			visit(m.Malformed, m.Where("malformed"))
		}
	}
}

func closeReasonUnknown(c *checker) {
	c.eachFault(func(fault string, pos model.Pos) {
		reason, ok := strings.CutPrefix(fault, "close:")
		if ok && c.spec.CloseReason(reason) == nil {
			c.add(pos, fmt.Sprintf("there is no close reason %s", reason), "correct the name or add the reason")
		}
	})
}

func errorNumbers(c *checker) {
	seen := map[uint32]string{}
	for _, e := range c.spec.Errors {
		if first, ok := seen[e.Code]; ok {
			c.add(e.Where("code"), fmt.Sprintf("%s has the number %d of %s", e.Name, e.Code, first), "give it a number of its own")
		}
		seen[e.Code] = e.Name
		c.codeRange(e)
	}
}

// codeRange reports a code outside of the range of its domain.
func (c *checker) codeRange(e *model.ErrorCode) {
	for _, r := range c.spec.CodeRanges {
		if r.Name != e.Domain {
			continue
		}
		if e.Code < r.From || e.Code > r.To {
			c.add(e.Where("code"), fmt.Sprintf("%d is not a number of the domain %s", e.Code, e.Domain), fmt.Sprintf("use one from %d to %d", r.From, r.To))
		}
		return
	}
	c.add(e.Where("domain"), fmt.Sprintf("the domain %s has no range of numbers", e.Domain), "correct the name or add the range")
}

func errorOutcomes(c *checker) {
	for _, e := range c.spec.Errors {
		if e.CarriedBy == "" && e.Outcome == "" {
			c.add(e.Pos, fmt.Sprintf("%s answers requests and does not say what became of them", e.Name), "add outcome")
		}
	}
}

func errorClasses(c *checker) {
	named, parents := map[string]bool{}, map[string]bool{}
	name := func(class string, pos model.Pos) {
		named[class] = true
		if c.spec.Class(class) == nil {
			c.add(pos, fmt.Sprintf("there is no class %s", class), "correct the name or add the class")
		}
	}
	for _, e := range c.spec.Errors {
		name(e.Class, e.Where("class"))
	}
	for _, l := range c.spec.Local {
		name(l.Class, l.Where("class"))
	}
	root := ""
	for _, k := range c.spec.Classes {
		switch {
		case k.Parent != "":
			parents[k.Parent] = true
			c.ancestry(k)
		case root != "":
			c.add(k.Pos, fmt.Sprintf("%s is a second root beside %s", k.Name, root), "give it a parent")
		default:
			root = k.Name
		}
	}
	for _, k := range c.spec.Classes {
		if !parents[k.Name] && !named[k.Name] {
			c.add(k.Pos, fmt.Sprintf("no code and no condition names the class %s", k.Name), "use it or remove it")
		}
	}
}

// ancestry walks from a class to the root.
func (c *checker) ancestry(k *model.ErrorClass) {
	seen := map[string]bool{k.Name: true}
	for at := k; at.Parent != ""; {
		parent := c.spec.Class(at.Parent)
		if parent == nil {
			if at == k {
				c.add(k.Where("parent"), fmt.Sprintf("there is no class %s", k.Parent), "correct the name or add the class")
			}
			return
		}
		if seen[parent.Name] {
			c.add(k.Where("parent"), fmt.Sprintf("%s is its own ancestor", k.Name), "break the cycle")
			return
		}
		seen[parent.Name], at = true, parent
	}
}
