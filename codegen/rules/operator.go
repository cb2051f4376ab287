package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

var operatorRules = []Rule{
	{"METRIC_NAME", "The name of a metric starts with the protocol and ends with its unit, and stands once.", metricNames},
	{"METRIC_LABEL", "No label holds what a peer chooses: routes, owners, sessions.", metricLabels},
	{"METRIC_BUCKETS", "A histogram, and nothing else, has buckets, which grow.", metricBuckets},
	{"SETTING_NAME", "A flag and an environment name belong to one setting; a secret has no flag.", settingNames},
	{"SETTING_VALUE", "An enumeration has values, and its default is one of them.", settingValues},
	{"ALIAS_EFFECT", "An alias sets something, waits for something or is without effect.", aliasEffects},
	{"ADMIN_TYPE", "What the admin interface answers is text or a type that exists; paths and their answers stand once.", adminTypes},
	{"SDK_DEFAULT", "A default of the SDKs is a bound, a value with a unit, or a growing delay.", sdkDefaults},
}

func (c *checker) eachMetric(visit func(m *model.Metric)) {
	for _, g := range c.spec.Metrics {
		for _, m := range g.Metrics {
			visit(m)
		}
	}
}

func metricNames(c *checker) {
	seen := map[string]bool{}
	c.eachMetric(func(m *model.Metric) {
		where := m.Where("name")
		if !strings.HasPrefix(m.Name, c.spec.Protocol+"_") {
			c.add(where, fmt.Sprintf("%s does not start with %s_", m.Name, c.spec.Protocol), "put it in front")
		}
		if seen[m.Name] {
			c.add(where, fmt.Sprintf("%s stands twice", m.Name), "rename one")
		}
		seen[m.Name] = true
		total := strings.HasSuffix(m.Name, "_total")
		switch {
		case m.Type == "counter" && !total:
			c.add(where, fmt.Sprintf("the counter %s does not end with _total", m.Name), "put it at the end")
		case m.Type != "counter" && total:
			c.add(where, fmt.Sprintf("%s ends with _total and is a %s", m.Name, m.Type), "make it a counter or rename it")
		case m.Type == "histogram" && !strings.HasSuffix(m.Name, "_seconds") && !strings.HasSuffix(m.Name, "_bytes"):
			c.add(where, fmt.Sprintf("the histogram %s does not end with its unit", m.Name), "end it with _seconds or _bytes")
		}
	})
}

// peerChosen is labels whose values a peer could make up without end.
var peerChosen = []string{"route", "selector", "pattern", "owner", "owner_id", "session", "session_id", "incarnation", "key", "token", "address", "subscription", "subscription_id", "family", "service_name", "sdk_name", "client"}

func metricLabels(c *checker) {
	c.eachMetric(func(m *model.Metric) {
		for i, label := range m.Labels {
			if slices.Contains(peerChosen, label) {
				c.add(m.Where(fmt.Sprintf("labels/%d", i)), fmt.Sprintf("the label %s of %s grows with what peers send", label, m.Name), "leave it out")
			}
		}
	})
}

func metricBuckets(c *checker) {
	c.eachMetric(func(m *model.Metric) {
		if (m.Type == "histogram") != (len(m.Buckets) > 0) {
			c.add(m.Pos, fmt.Sprintf("%s is a %s with %d buckets", m.Name, m.Type, len(m.Buckets)), "give buckets to histograms and to nothing else")
		}
		for i := 1; i < len(m.Buckets); i++ {
			if m.Buckets[i] <= m.Buckets[i-1] {
				c.add(m.Where(fmt.Sprintf("buckets/%d", i)), fmt.Sprintf("the buckets of %s do not grow", m.Name), "sort them")
			}
		}
	})
}

func settingNames(c *checker) {
	flags, envs := map[string]string{}, map[string]string{}
	once := func(seen map[string]string, name, owner string, pos model.Pos) {
		if first, ok := seen[name]; ok {
			c.add(pos, fmt.Sprintf("%s has the name %s of %s", owner, name, first), "give it a name of its own")
			return
		}
		seen[name] = owner
	}
	env := func(name, owner string, pos model.Pos) {
		once(envs, name, owner, pos)
		if !strings.HasPrefix(name, c.spec.Broker.EnvPrefix) {
			c.add(pos, fmt.Sprintf("%s does not start with %s", name, c.spec.Broker.EnvPrefix), "put it in front")
		}
	}
	for _, l := range c.spec.Broker.Listeners {
		once(flags, l.Flag, l.Name, l.Where("flag"))
		env(l.Env, l.Name, l.Where("env"))
	}
	for _, s := range c.spec.Broker.Settings {
		switch isSecret := s.Type == "secret"; {
		case isSecret && s.Flag != "":
			c.add(s.Where("flag"), fmt.Sprintf("the secret %s has a flag, which others on the machine can read", s.Name), "remove it")
		case !isSecret && s.Flag == "":
			c.add(s.Pos, fmt.Sprintf("the setting %s has no flag", s.Name), "add flag; only a secret has none")
		case s.Flag != "":
			once(flags, s.Flag, s.Name, s.Where("flag"))
		}
		env(s.Env, s.Name, s.Where("env"))
		for i, a := range s.Aliases {
			env(a, s.Name, s.Where(fmt.Sprintf("aliases/%d", i)))
		}
	}
	for _, a := range c.spec.Broker.Aliases {
		env(a.Name, a.Name, a.Pos)
	}
}

func settingValues(c *checker) {
	for _, s := range c.spec.Broker.Settings {
		isEnum := s.Type == "enum"
		if isEnum != (len(s.Values) > 0) {
			c.add(s.Pos, fmt.Sprintf("the setting %s of type %s has %d values", s.Name, s.Type, len(s.Values)), "give values to enumerations and to nothing else")
		}
		if isEnum && !slices.Contains(s.Values, s.Default) {
			c.add(s.Where("default"), fmt.Sprintf("the default %q of %s is none of its values", s.Default, s.Name), "use one of them")
		}
		if s.Type == "bool" && s.Default != "true" && s.Default != "false" {
			c.add(s.Where("default"), fmt.Sprintf("the default %q of %s is not true or false", s.Default, s.Name), "use true or false")
		}
	}
}

func aliasEffects(c *checker) {
	for _, a := range c.spec.Broker.Aliases {
		n := 0
		for _, has := range []bool{a.Sets != "", a.WaitsFor != "", a.WithoutEffect} {
			if has {
				n++
			}
		}
		if n != 1 {
			c.add(a.Pos, fmt.Sprintf("%s has %d of sets, waits_for and without_effect", a.Name, n), "give it one of them")
		}
		if a.Refuse != "" && a.WaitsFor == "" {
			c.add(a.Where("refuse"), fmt.Sprintf("%s refuses a value and waits for nothing", a.Name), "add waits_for or remove refuse")
		}
	}
}

func sdkDefaults(c *checker) {
	for _, d := range c.spec.SDK.Defaults {
		_, delay := d.At["first"]
		n := 0
		for _, has := range []bool{d.Bound != "", d.Value != "", delay} {
			if has {
				n++
			}
		}
		if n != 1 {
			c.add(d.Pos, fmt.Sprintf("%s has %d of bound, value and first", d.Name, n), "give it one of them")
		}
		if d.Bound == "" && d.Unit == "" {
			c.add(d.Pos, fmt.Sprintf("%s has no unit", d.Name), "add unit; only a bound brings its own")
		}
	}
}

func adminTypes(c *checker) {
	admin := &c.spec.Admin
	paths := map[string]bool{}
	for _, p := range admin.Paths {
		if paths[p.Path] {
			c.add(p.Where("path"), fmt.Sprintf("the path %s stands twice", p.Path), "join the two")
		}
		paths[p.Path] = true
		seen := map[int]bool{}
		for _, a := range slices.Concat(p.Answers, admin.Refusals) {
			if seen[a.Status] {
				c.add(a.Pos, fmt.Sprintf("%s answers %d twice", p.Path, a.Status), "join the two")
			}
			seen[a.Status] = true
		}
		adminAnswers(c, p.Answers)
	}
	adminAnswers(c, admin.Refusals)
	for _, t := range admin.Types {
		for _, f := range t.Fields {
			adminField(c, f)
		}
	}
}

func adminAnswers(c *checker, answers []*model.AdminAnswer) {
	for _, a := range answers {
		if a.Type != "text" && c.spec.Admin.Type(a.Type) == nil {
			c.add(a.Pos, fmt.Sprintf("there is no type %s", a.Type), "add it to types, or answer text")
		}
	}
}

func adminField(c *checker, f *model.AdminField) {
	name := f.Type
	if f.Elem != "" {
		name = f.Elem
	}
	if !slices.Contains(model.AdminScalars, name) && c.spec.Admin.Type(name) == nil {
		c.add(f.Where("type"), fmt.Sprintf("there is no type %s", name), "add it to types")
	}
	if f.Type != "string" && (len(f.Values) > 0 || f.Pattern != "") {
		c.add(f.Pos, fmt.Sprintf("%s is no text and has values or a pattern", f.Name), "leave them to texts")
	}
}
