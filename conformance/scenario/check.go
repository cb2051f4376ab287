package scenario

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Variables that every scenario has. bound.NAME is a bound of the specification.
const (
	VarRealm     = "REALM"     // a realm that no other case uses
	VarTransport = "TRANSPORT" // tcp, ws
	VarLabels    = "LABELS"    // on, off
	VarSeed      = "SEED"      // seed of the case
	VarAuth      = "AUTH"      // anonymous, token
	VarCA        = "CA"        // file with the certificate that signs those of links with TLS
	VarOtherCA   = "OTHER_CA"  // file with a certificate that signs none of them
	VarBound     = "bound"
)

var builtin = []string{VarRealm, VarTransport, VarLabels, VarSeed, VarAuth, VarCA, VarOtherCA, VarBound}

// What a name stands for.
const (
	isBroker     = "broker"
	isFake       = "fake broker"
	isLink       = "link"
	isClient     = "client"
	isPeer       = "peer"
	isHandle     = "handle"
	isCall       = "running command"
	isRule       = "rule or fault"
	isMark       = "mark"
	isBackground = "background"
	isVariable   = "variable"
)

// checker walks the steps in their order and knows what was named before.
type checker struct {
	*file
	scenario *Scenario
	catalog  *Catalog
	named    map[string][]string // by what a name stands for
}

func (f *file) check(s *Scenario, catalog *Catalog) {
	c := &checker{file: f, scenario: s, catalog: catalog, named: map[string][]string{}}
	c.head()
	for name := range s.Brokers {
		c.name(isBroker, name)
	}
	for _, name := range builtin {
		c.name(isVariable, name)
	}
	for name := range s.Vars { // they may use each other
		c.name(isVariable, name)
	}
	for _, name := range keys(s.Vars) {
		c.variables(f.pos(get(get(f.root, "vars"), name)), s.Vars[name])
	}
	c.steps(s.Steps)
	for i := range s.Always {
		step := &s.Always[i]
		if !slices.Contains([]string{"count", "order", "events", "check"}, step.Action) {
			f.add(step.Pos, "ALWAYS", fmt.Sprintf("%s cannot be checked over a whole case", step.Action), "use count, order, events or check")
		}
	}
	c.steps(s.Always)
}

func (c *checker) head() {
	s := c.scenario
	if want := strings.TrimSuffix(path.Base(s.File), ".yaml"); s.ID != want {
		c.add(c.pos(get(c.root, "id")), "ID", fmt.Sprintf("the id is %s and the file is named %s", s.ID, want), "make them equal")
	}
	if len(s.Proves)+len(s.Refuses) == 0 {
		c.add(c.pos(c.root), "CLAUSES", "the scenario shows no clause", "name the clauses under proves or refuses")
	}
	if one := len(s.Auth) == 1; one != (s.AuthReason != "") {
		c.add(c.pos(get(c.root, "auth")), "AUTH", "a scenario that runs in one column of auth only says why, and no other does", "give auth and auth_reason, or neither")
	}
	if s.Subject == Broker && len(s.Needs) > 0 {
		c.add(c.pos(get(c.root, "needs")), "NEEDS", "a scenario about a broker has no driver", "remove the key")
	}
	if c.catalog == nil {
		return
	}
	c.settings(get(c.root, "broker"))
	names(get(c.root, "brokers"), func(_ string, b *yaml.Node) { c.settings(b) })
	for _, list := range []string{"proves", "refuses"} {
		for _, n := range items(get(c.root, list)) {
			if !c.catalog.Clauses[n.Value] {
				c.add(c.pos(n), "UNKNOWN_CLAUSE", fmt.Sprintf("there is no clause %q", n.Value), "use an id of spec/clauses.yaml")
			}
		}
	}
	for _, n := range items(get(c.root, "codes")) {
		if _, ok := c.catalog.Codes[n.Value]; !ok {
			c.add(c.pos(n), "UNKNOWN_CODE", fmt.Sprintf("there is no error code %q", n.Value), "use a name of spec/errors.yaml, as LEASE_HELD or protocol.violation")
		}
	}
}

func has[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }

// settings checks the names under the settings of a broker.
func (c *checker) settings(broker *yaml.Node) {
	given := get(broker, "settings")
	names(given, func(key string, v *yaml.Node) {
		if !c.catalog.Settings[key] {
			c.add(c.pos(v), "UNKNOWN_SETTING", fmt.Sprintf("there is no setting %q", key), "use a name of spec/broker.yaml; bounds stand under limits")
		}
	})
	names(get(given, "limits"), func(key string, v *yaml.Node) {
		if !c.catalog.Bounds[key] {
			c.add(c.pos(v), "UNKNOWN_LIMIT", fmt.Sprintf("%q is no bound that an operator may change", key), "use a name of spec/bounds.yaml with operator_may_change")
		}
	})
}

func (c *checker) name(kind, name string) { c.named[kind] = append(c.named[kind], name) }

// pattern of the static parts of a name with variables.
var inName = regexp.MustCompile(`\$\{?[A-Za-z_][A-Za-z0-9_.]*\}?`)

// has tells whether a name was made before. Names that hold a variable are compared by what stands before it.
func (c *checker) has(kind, name string) bool {
	return slices.ContainsFunc(c.named[kind], func(made string) bool {
		if made == name {
			return true
		}
		static := inName.Split(made, 2)
		wanted := inName.Split(name, 2)
		return (len(static) > 1 || len(wanted) > 1) &&
			(strings.HasPrefix(wanted[0], static[0]) && len(static) > 1 || strings.HasPrefix(static[0], wanted[0]) && len(wanted) > 1)
	})
}

// must reports a name that nothing made before.
func (c *checker) must(pos Pos, name string, kinds ...string) {
	if name == "" || slices.ContainsFunc(kinds, func(kind string) bool { return c.has(kind, name) }) {
		return
	}
	c.add(pos, "UNKNOWN_NAME", fmt.Sprintf("no %s %q was made before", strings.Join(kinds, " or "), name), "make it first or mend the name")
}

func (c *checker) steps(steps []Step) {
	for i := range steps {
		c.step(&steps[i])
	}
}

func (c *checker) step(s *Step) {
	c.words(s)
	c.references(s)
	if s.Has("var") {
		c.name(isVariable, s.Text("var"))
	}
	c.steps(s.Steps)
	c.makes(s)
}

// words checks what the step takes from the specification, its variables and its matchers.
func (c *checker) words(s *Step) {
	c.variables(s.Pos, s.Name)
	for _, key := range keys(s.params) {
		if key == "save" || key == "script" || key == "actions" {
			continue
		}
		c.variables(s.At(key), s.params[key])
		c.matchers(s.At(key), s.params[key])
		c.message(s.At(key), key, s.params[key])
	}
	if s.Action == "do" || s.Action == "start" {
		c.commandOf(s)
	}
	if code := s.Text("err"); code != "" && !strings.HasPrefix(code, "$") {
		c.code(s.At("err"), code)
	}
	if s.Action == "set" {
		return
	}
	if s.Action == "count" || s.Action == "events" {
		exact := s.Has("is")
		if exact == (s.Has("min") || s.Has("max")) {
			c.add(s.Pos, "COUNT", "it takes either is, or min and max", "give one of them")
		}
	}
}

// code checks the name of an error code. One of small letters is of a client itself (config.invalid), or the text of one in an SDK.
func (c *checker) code(pos Pos, code string) {
	if c.catalog == nil {
		return
	}
	_, ok := c.catalog.Codes[code]
	if strings.ToLower(code) == code && !ok { // the text of a code in an SDK is its name, made mechanically
		_, ok = c.catalog.Codes[strings.ToUpper(strings.ReplaceAll(code, ".", "_"))]
	}
	if !ok {
		c.add(pos, "UNKNOWN_CODE", fmt.Sprintf("there is no error code %q", code), "use a name of spec/errors.yaml, or the text of a code in an SDK")
	}
}

// message checks the names of messages wherever they stand.
func (c *checker) message(pos Pos, key string, v any) {
	if c.catalog == nil {
		return
	}
	switch v := v.(type) {
	case string:
		if _, ok := c.catalog.Messages[v]; key == "message" && !ok {
			c.add(pos, "UNKNOWN_MESSAGE", fmt.Sprintf("there is no message %q", v), "write domain.operation as in spec/domains")
		}
	case []any:
		if key != "frames" && key != "records" {
			return
		}
		for _, member := range v {
			m, _ := member.(map[string]any)
			c.message(pos, "message", m["message"])
		}
	}
}

// commandOf checks that a peer is asked for an operation of the protocol; commands of drivers are their own affair.
func (c *checker) commandOf(s *Step) {
	if on := s.Text("on"); c.catalog == nil || strings.HasPrefix(on, "$") || !c.has(isPeer, on) {
		return
	}
	if !c.catalog.Messages[s.Name] {
		c.add(s.Pos, "UNKNOWN_COMMAND", fmt.Sprintf("%q is no operation, which is what a peer can do", s.Name), "use an operation of spec/domains, or send")
	}
	if s.Has("as") || s.Has("of") || s.Has("lane") {
		c.add(s.Pos, "PEER", "a peer has no handles and no lanes", "remove as, of and lane")
	}
}

func (c *checker) variables(pos Pos, v any) {
	local := localVariables(v)
	for _, name := range Variables(v) {
		head, rest, _ := strings.Cut(name, ".")
		if !c.has(isVariable, head) && !slices.Contains(local, head) {
			c.add(pos, "UNKNOWN_VARIABLE", fmt.Sprintf("the variable %q is not set before", head), "set it under vars, with set or with save")
		}
		if head == VarBound && c.catalog != nil && !has(c.catalog.Bounds, rest) {
			c.add(pos, "UNKNOWN_BOUND", fmt.Sprintf("there is no bound %q", rest), "use a name of spec/bounds.yaml")
		}
	}
}

// localVariables is the counters of the {$list} in a value.
func localVariables(v any) []string {
	var out []string
	switch v := v.(type) {
	case []any:
		for _, member := range v {
			out = append(out, localVariables(member)...)
		}
	case map[string]any:
		if spec, ok := only(v, opRange); ok {
			out = append(out, text(spec["var"]))
		}
		for _, key := range keys(v) {
			out = append(out, localVariables(v[key])...)
		}
	}
	return out
}

// matchers reports operators that do not exist and patterns that do not compile.
func (c *checker) matchers(pos Pos, v any) {
	switch v := v.(type) {
	case []any:
		for _, member := range v {
			c.matchers(pos, member)
		}
	case map[string]any:
		for _, key := range keys(v) {
			c.operator(pos, key, v[key])
			c.matchers(pos, v[key])
		}
	}
}

func (c *checker) operator(pos Pos, key string, operand any) {
	if !strings.HasPrefix(key, "$") {
		return
	}
	known := append(Operators(), opSum, opRepeat, opHex, opText, opRange)
	if !slices.Contains(known, key) {
		c.add(pos, "UNKNOWN_OPERATOR", fmt.Sprintf("there is no operator %q", key), "known are "+strings.Join(known, ", "))
	}
	if pattern, ok := operand.(string); key == "$re" && ok {
		if _, err := regexp.Compile(pattern); err != nil {
			c.add(pos, "PATTERN", err.Error(), "mend the regular expression")
		}
	}
}

// references checks that what a step is about was made before.
func (c *checker) references(s *Step) {
	c.must(s.At("on"), s.Text("on"), isClient, isPeer)
	c.must(s.At("peer"), s.Text("peer"), isPeer)
	c.must(s.At("since"), s.Text("since"), isMark)
	c.must(s.At("to"), s.Text("to"), isBroker, isFake)
	c.must(s.At("link"), s.Text("link"), isLink)
	if through := s.Text("through"); s.Action != "connect" || through != s.Name {
		c.must(s.At("through"), through, isLink)
	}
	if of := s.Text("of"); of != "" {
		c.must(s.At("of"), of, isHandle, isClient)
	}
	if kinds, ok := subjects[s.Action]; ok {
		c.must(s.Pos, s.Name, kinds...)
	}
}

// subjects is what the name under the key of an action must stand for.
var subjects = map[string][]string{
	"disconnect": {isPeer}, "closed": {isPeer}, "send": {isPeer}, "pause": {isPeer}, "resume": {isPeer},
	"act": {isFake}, "open_gate": {isFake}, "followed": {isFake}, "inject": {isLink}, "shut": {isLink},
	"broker_stats": {isBroker}, "broker_holds": {isBroker},
	"expect": {isPeer, isFake}, "join": {isCall}, "pending": {isCall}, "cancel": {isCall},
	"release": {isRule}, "lift": {isRule}, "end": {isBackground},
	"cut": {isLink}, "reset": {isLink}, "blackhole": {isLink}, "freeze": {isLink}, "refuse": {isLink}, "auth_reject": {isLink},
	"ws_close": {isLink}, "mute_ping": {isLink}, "swap": {isLink},
	"restart_broker": {isBroker}, "stop_broker": {isBroker}, "start_broker": {isBroker}, "pause_broker": {isBroker},
	"resume_broker": {isBroker}, "drain_broker": {isBroker},
}

// makes notes the names that a step makes.
func (c *checker) makes(s *Step) {
	switch s.Action {
	case "connect":
		c.client(s)
	case "peer":
		c.name(isPeer, s.Name)
	case "link":
		c.name(isLink, s.Name)
	case "fake":
		c.name(isFake, s.Name)
	case "mark":
		c.name(isMark, s.Name)
	case "background":
		c.name(isBackground, s.Name)
	case "mint":
		c.name(isVariable, s.Name)
		c.name(isVariable, s.Text("parts"))
	case "set":
		for name := range s.params {
			c.name(isVariable, name)
		}
	case "do", "start":
		c.name(isHandle, s.Text("as"))
	default:
		c.name(isRule, s.Text("as"))
	}
	if s.Has("call") {
		c.name(isCall, s.Text("call"))
	}
	for name := range s.Map("save") {
		c.name(isVariable, name)
	}
}

func (c *checker) client(s *Step) {
	if c.scenario.Subject == Broker {
		c.add(s.Pos, "SUBJECT", "a scenario about a broker has no driver", "use a peer, or let the subject be client")
	}
	c.name(isClient, s.Name)
	if !s.Has("through") {
		c.name(isLink, s.Name)
	}
}
