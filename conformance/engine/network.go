package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/proxy"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/trace"
)

// hidden is what a link takes out of every hello in the column without labels.
var hidden = []string{"correlation", "session_metadata", "lifecycle"}

func (x *exec) doLink(_ context.Context, s *scenario.Step) error {
	name, err := x.word(s.Name)
	if err != nil {
		return err
	}
	to, err := x.text(s, "to")
	if err != nil {
		return err
	}
	kind, err := x.text(s, "tls")
	if err != nil {
		return err
	}
	l, err := x.makeLink(name, to)
	if err != nil {
		return err
	}
	return x.secure(l, kind)
}

func (x *exec) makeLink(name, to string) (*link, error) {
	if to == "" {
		to = scenario.DefaultBroker
	}
	l := &link{to: to}
	o := proxy.Options{Name: name}
	if x.cell.Labels == scenario.LabelsOff {
		o.HideCapabilities = hidden
	}
	p, err := proxy.Start(x.spec, l.target(x), o)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	l.Proxy = p
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.links[name] != nil {
		return nil, errors.Join(mistaken("the link %q exists already", name), p.Close())
	}
	x.links[name] = l
	return l, nil
}

// target is where the link leads to at the moment.
func (l *link) target(x *exec) proxy.Target {
	return func(transport string) string {
		l.mu.Lock()
		to := l.to
		l.mu.Unlock()
		return x.address(to, transport)
	}
}

func (x *exec) doSwap(_ context.Context, s *scenario.Step) error {
	name, err1 := x.word(s.Name)
	to, err2 := x.text(s, "to")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	l, err := x.link(name)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
	return nil
}

// Clients of a driver.

func (x *exec) doConnect(ctx context.Context, s *scenario.Step) error {
	name, err1 := x.word(s.Name)
	through, err2 := x.text(s, "through")
	args, err3 := x.mapping(s, "args")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if through == "" {
		through = name
	}
	l, err := x.link(through)
	if err != nil {
		if l, err = x.makeLink(through, ""); err != nil {
			return err
		}
	}
	if _, given := args["url"]; !given {
		args["url"] = l.URL(x.cell.Transport)
		if l.url != "" {
			args["url"] = l.url
		}
	}
	if err := x.identify(args); err != nil {
		return err
	}
	r, err := x.command(driver.Command{Cmd: "client.connect", As: x.handle(name)}, args)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.clients[name] = true
	x.mu.Unlock()
	if s.Has("call") {
		return x.keep(s, r)
	}
	out, err := x.end(ctx, r)
	if err != nil {
		return err
	}
	return x.judge(s, "connect "+name, out)
}

// identify gives a client the token of the column, unless its step says where it has one from.
func (x *exec) identify(args map[string]any) error {
	for _, name := range []string{"token", "tokens", "token_file"} {
		if _, given := args[name]; given {
			return nil
		}
	}
	token, err := x.credentials(false, "")
	if token != "" {
		args["token"] = token
	}
	return err
}

// Raw peers.

func (x *exec) doPeer(ctx context.Context, s *scenario.Step) error {
	name, err := x.word(s.Name)
	if err != nil {
		return err
	}
	o, err := x.peerOptions(s, name)
	if err != nil {
		return err
	}
	if o.Address == "" {
		return cannotRun(ReasonNoTransport, "the broker does not serve %s", x.cell.Transport)
	}
	p, err := rawpeer.Dial(ctx, x.spec, o)
	if s.Has("fails") {
		return x.failsAs(s, p, err)
	}
	if err != nil {
		return x.refused(ctx, err)
	}
	x.mu.Lock()
	twice := x.peers[name] != nil
	if !twice {
		x.peers[name] = p
	}
	x.mu.Unlock()
	if twice {
		p.Close()
		return mistaken("the peer %q exists already", name)
	}
	hello, ok := p.Hello()
	if !s.Has("save") {
		return nil
	}
	if !ok {
		return failed(ReasonExpectation, "there is no SERVER_HELLO to save from")
	}
	return x.save(s, decoded(x.spec, oracle.Down, hello))
}

func (x *exec) refused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return failed(ReasonRefused, "%v", err)
}

// failsAs compares how a session that could not be opened ended with what the step wants.
func (x *exec) failsAs(s *scenario.Step, p *rawpeer.Peer, err error) error {
	want := s.Text("fails")
	if err == nil {
		p.Close()
		return failed(ReasonExpectation, "expected the connection to end with %s, and it is open", want)
	}
	var closed *rawpeer.Close
	var upgrade *rawpeer.UpgradeError
	how := ""
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		how = "dial"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		how = "rst" // found by a write
	case errors.As(err, &upgrade):
		how = "upgrade"
	case errors.As(err, &closed):
		how = string(closed.How)
	default:
		return err
	}
	if want != "any" && want != how {
		return failed(ReasonExpectation, "expected the connection to end with %s, got %s: %v", want, how, err)
	}
	if !s.Has("status") {
		return nil
	}
	status := int64(0)
	if upgrade != nil {
		status = int64(upgrade.Status)
	}
	return x.match("status", s.Value("status"), status)
}

func (x *exec) peerOptions(s *scenario.Step, name string) (rawpeer.Options, error) {
	to, err1 := x.text(s, "to")
	through, err2 := x.text(s, "through")
	token, err3 := x.text(s, "token")
	path, err4 := x.text(s, "path")
	buffer, err5 := x.number(s, "read_buffer", 0)
	headers, err6 := x.expand(s.Value("headers"))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return rawpeer.Options{}, err
	}
	if to == "" {
		to = scenario.DefaultBroker
	}
	token, err := x.credentials(s.Has("token"), token)
	if err != nil {
		return rawpeer.Options{}, err
	}
	on := x.cell.Labels == scenario.LabelsOn
	o := rawpeer.Options{
		Name: name, Transport: x.cell.Transport, Address: x.address(to, x.cell.Transport), Token: token, Path: path,
		NoConnect: s.Has("greet") && !s.Flag("greet"),
		NoHello:   s.Has("handshake") && !s.Flag("handshake"),
		Negotiate: on && !s.Has("negotiate") || s.Flag("negotiate"),
		Labels:    on && !s.Has("labels") || s.Flag("labels"),
		AutoPong:  !s.Has("pong") || s.Flag("pong"), ReadBuffer: int(buffer),
	}
	o.Negotiate = o.Negotiate && !o.NoHello && !o.NoConnect
	o.Labels = o.Labels && !o.NoHello && !o.NoConnect
	if door := s.Text("door"); door != "" {
		o.Address = x.listener(to, x.cell.Transport, door)
	}
	if through != "" {
		l, err := x.link(through)
		if err != nil {
			return o, err
		}
		o.Address = l.Address(x.cell.Transport)
	}
	if s.Has("capabilities") {
		o.Want = []string{}
		for _, c := range s.List("capabilities") {
			o.Want = append(o.Want, fmt.Sprint(c))
		}
	}
	lines, _ := headers.([]any)
	for _, line := range lines {
		o.Header = append(o.Header, fmt.Sprint(line))
	}
	return o, nil
}

func (x *exec) namedPeer(s *scenario.Step) (*rawpeer.Peer, error) {
	name, err := x.word(s.Name)
	if err != nil {
		return nil, err
	}
	return x.peer(name)
}

func (x *exec) doDisconnect(_ context.Context, s *scenario.Step) error {
	p, err := x.namedPeer(s)
	if err != nil {
		return err
	}
	how, err := x.text(s, "how")
	if err != nil {
		return err
	}
	switch how {
	case "fin":
		p.CloseWrite()
	case "rst":
		p.Reset()
	default:
		p.Close()
	}
	return nil
}

func (x *exec) doPause(_ context.Context, s *scenario.Step) error {
	p, err := x.namedPeer(s)
	if err != nil {
		return err
	}
	if s.Action == "pause" {
		p.Pause()
	} else {
		p.Resume()
	}
	return nil
}

func (x *exec) doClosed(ctx context.Context, s *scenario.Step) error {
	p, err := x.namedPeer(s)
	if err != nil {
		return err
	}
	end, err := p.AwaitClose(ctx)
	if err != nil {
		return err
	}
	how, err := x.text(s, "how")
	if err != nil {
		return err
	}
	if how != "" && how != "any" && how != string(end.How) {
		return failed(ReasonExpectation, "expected the connection to end with %s: %v", how, &end)
	}
	if s.Has("code") {
		if err := x.match("close code", s.Value("code"), int64(end.Code)); err != nil {
			return err
		}
	}
	return x.closedBecause(s, end)
}

// closedBecause compares the end of a connection with the reason that a step names. TCP has no place for a reason: there the end must be orderly.
func (x *exec) closedBecause(s *scenario.Step, end rawpeer.Close) error {
	name, err := x.text(s, "reason")
	if err != nil || name == "" {
		return err
	}
	reason, known := x.spec.CloseReason(name)
	if !known {
		return mistaken("there is no close reason %q", name)
	}
	if x.cell.Transport == scenario.TCP {
		if end.How != rawpeer.FIN {
			return failed(ReasonExpectation, "expected an orderly end of the connection: %v", &end)
		}
		return nil
	}
	same := end.Text == reason.Text || reason.Detail && strings.HasPrefix(end.Text, reason.Text)
	if end.How != rawpeer.WS || end.Code != reason.Code || !same {
		return failed(ReasonExpectation, "expected the close frame %d %q: %v", reason.Code, reason.Text, &end)
	}
	return nil
}

// record makes a record of a mapping of the scenario.
func (x *exec) record(m map[string]any) (oracle.Record, error) {
	v, err := x.expandMap(m)
	if err != nil {
		return oracle.Record{}, err
	}
	return x.recordAs(v)
}

// recordAs makes a record of a mapping whose variables are replaced.
func (x *exec) recordAs(v map[string]any) (oracle.Record, error) {
	message, _ := v["message"].(string)
	form, _ := v["form"].(string)
	label, _ := scenario.Int(v["label"])
	r := oracle.Record{Message: message, Form: oracle.Form(form), Label: uint64(label)}
	if digits, ok := v["hex"].(string); ok {
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			return r, mistaken("%v", err)
		}
		r.Bytes = b
		return r, nil
	}
	if r.Form == "" {
		r.Form = x.engine.form(message)
	}
	fields, _ := v["value"].(map[string]any)
	r.Value = wire(fields)
	return r, nil
}

// params is the parameters of a step that make a record.
func recordOf(s *scenario.Step) map[string]any {
	m := map[string]any{}
	for _, key := range []string{"message", "form", "value", "label"} {
		if s.Has(key) {
			m[key] = s.Value(key)
		}
	}
	return m
}

// records is what a step sends in one transport message.
func (x *exec) records(s *scenario.Step) ([]oracle.Record, error) {
	v, err := x.expand(s.Value("records"))
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	if v == nil {
		r, err := x.record(recordOf(s))
		return []oracle.Record{r}, err
	}
	records := make([]oracle.Record, 0, len(list))
	for _, member := range list {
		m, err := asMapping(member)
		if err != nil {
			return nil, err
		}
		r, err := x.recordAs(m)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	if len(records) == 0 {
		return nil, mistaken("there are no records to send")
	}
	return records, nil
}

func (x *exec) doSend(ctx context.Context, s *scenario.Step) error {
	p, err := x.namedPeer(s)
	if err != nil {
		return err
	}
	if s.Has("hex") {
		return x.sendBytes(ctx, s, p)
	}
	records, err := x.records(s)
	if err != nil {
		return err
	}
	if !s.Has("declare") {
		return encoding(p.Send(ctx, records...))
	}
	size, err := x.number(s, "declare", 0)
	if err != nil {
		return err
	}
	var payload []byte
	for _, r := range records {
		b, err := x.spec.EncodeAny(r.Message, r.Form, r.Value)
		if err != nil {
			return encoding(err)
		}
		payload = append(payload, x.spec.Label(oracle.Up, r.Label, b)...)
	}
	return p.SendDeclared(ctx, payload, uint64(size))
}

func (x *exec) sendBytes(ctx context.Context, s *scenario.Step, p *rawpeer.Peer) error {
	digits, err := x.text(s, "hex")
	if err != nil {
		return err
	}
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		return mistaken("%v", err)
	}
	chunk, err1 := x.number(s, "chunk", 0)
	size, err2 := x.number(s, "declare", 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	switch {
	case s.Has("declare"):
		return p.SendDeclared(ctx, b, uint64(size))
	case s.Flag("raw"):
		return p.Write(ctx, b, int(chunk))
	}
	return p.SendMessage(ctx, b)
}

func (x *exec) doExpect(ctx context.Context, s *scenario.Step) error {
	name, err := x.word(s.Name)
	if err != nil {
		return err
	}
	f, err := x.stepFilter(s, 0)
	if err != nil {
		return err
	}
	chooses := func(e trace.Entry) bool { return f.Chooses(e) }
	var got rawpeer.Received
	if x.isFake(name) {
		b, err := x.fake(name)
		if err != nil {
			return err
		}
		got, err = b.Next(ctx, fakebroker.Filter{Message: f.Message, Match: func(r fakebroker.Received) bool { return s.Flag("next") || chooses(r.Entry) }})
		if err != nil {
			return err
		}
	} else {
		p, err := x.peer(name)
		if err != nil {
			return err
		}
		if s.Flag("next") {
			got, err = p.First(ctx)
		} else {
			got, err = p.Next(ctx, rawpeer.Filter{Kind: f.Kind, Match: func(r rawpeer.Received) bool { return chooses(r.Entry) }})
		}
		if err != nil {
			return err
		}
	}
	if !chooses(got.Entry) {
		return failed(ReasonExpectation, "the next frame of %s is %s", name, got.Entry)
	}
	return x.save(s, fields(x.spec, got.Entry))
}

// Scripted brokers.

func (x *exec) doFake(_ context.Context, s *scenario.Step) error {
	name, err := x.word(s.Name)
	if err != nil {
		return err
	}
	var script fakebroker.Script
	if err := x.asData(s.Map("script"), &script); err != nil {
		return err
	}
	f, err := fakebroker.Start(x.spec, script, fakebroker.Options{Name: name})
	if err != nil {
		return mistaken("script of %s: %v", name, err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fakes[name] != nil {
		f.Close()
		return mistaken("the fake broker %q exists already", name)
	}
	x.fakes[name] = f
	return nil
}

// asData puts a value of the scenario into a type of the scripted broker. `$request` stays, because the broker replaces it.
func (x *exec) asData(v any, into any) error {
	expanded, err := scenario.Expand(v, func(name string) (any, bool) {
		if head, _, _ := strings.Cut(name, "."); head == "request" {
			return "$" + name, true
		}
		return x.lookup(name)
	})
	if err != nil {
		return mistaken("%v", err)
	}
	text, err := json.Marshal(expanded)
	if err != nil {
		return mistaken("%v", err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return mistaken("%v", err)
	}
	return nil
}

func (x *exec) namedFake(s *scenario.Step) (*fakebroker.Broker, error) {
	name, err := x.word(s.Name)
	if err != nil {
		return nil, err
	}
	return x.fake(name)
}

func (x *exec) doAct(ctx context.Context, s *scenario.Step) error {
	f, err := x.namedFake(s)
	if err != nil {
		return err
	}
	conn, err := x.number(s, "conn", 0)
	if err != nil {
		return err
	}
	var actions []fakebroker.Action
	if err := x.asData(s.Value("actions"), &actions); err != nil {
		return err
	}
	return f.Do(ctx, int(conn), actions...)
}

func (x *exec) doGate(_ context.Context, s *scenario.Step) error {
	f, err := x.namedFake(s)
	if err != nil {
		return err
	}
	gate, err := x.text(s, "gate")
	if err != nil {
		return err
	}
	f.Release(gate)
	return nil
}

func (x *exec) doFollowed(ctx context.Context, s *scenario.Step) error {
	f, err := x.namedFake(s)
	if err != nil {
		return err
	}
	rule, err1 := x.text(s, "rule")
	n, err2 := x.number(s, "n", 1)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return f.AwaitHits(ctx, rule, int(n))
}

// Rules and faults of proxies.

// ruleFilter makes the filter of a rule.
func (x *exec) ruleFilter(s *scenario.Step) (proxy.Filter, error) {
	m := map[string]any{}
	for _, key := range append([]string{"message", "form", "dir"}, filterKeys...) {
		if s.Has(key) && (key != "form" || s.Action != "answer") {
			m[key] = s.Value(key)
		}
	}
	f, err := x.filter(m, "", 0)
	if err != nil {
		return proxy.Filter{}, err
	}
	nth, err1 := x.number(s, "nth", 1)
	times, err2 := x.number(s, "times", 1)
	as, err3 := x.text(s, "as")
	return proxy.Filter{
		Name: as, Dir: f.Dir, Message: f.Message, Form: f.Form, Match: f.Where, Nth: int(nth), Count: int(times),
	}, errors.Join(err1, err2, err3)
}

func (x *exec) doRule(_ context.Context, s *scenario.Step) error {
	name, err := x.text(s, "link")
	if err != nil {
		return err
	}
	l, err := x.link(name)
	if err != nil {
		return err
	}
	f, err := x.ruleFilter(s)
	if err != nil {
		return err
	}
	rule, err := x.rule(l, f, s)
	if err != nil {
		return err
	}
	return x.remember(f.Name, lifter{rule: rule})
}

func (x *exec) rule(l *link, f proxy.Filter, s *scenario.Step) (*proxy.Rule, error) {
	number := map[string]int64{}
	for key, otherwise := range map[string]int64{"ms": 1, "byte": 0, "xor": 255, "n": 2, "size": 0} {
		n, err := x.number(s, key, otherwise)
		if err != nil {
			return nil, err
		}
		number[key] = n
	}
	switch s.Action {
	case "hold":
		return l.Hold(f), nil
	case "hold_alone":
		return l.HoldAlone(f), nil
	case "delay":
		return l.Delay(f, time.Duration(number["ms"])*time.Millisecond), nil
	case "drop":
		return l.Drop(f), nil
	case "duplicate":
		return l.Duplicate(f), nil
	case "reorder":
		return l.Reorder(f), nil
	case "corrupt":
		return l.Corrupt(f, int(number["byte"]), byte(number["xor"])), nil
	case "split":
		return l.Split(f), nil
	case "coalesce":
		return l.Coalesce(f, int(number["n"])), nil
	case "pack":
		return l.Join(f, int(number["n"])), nil
	case "oversize":
		return l.Oversize(f, uint64(number["size"])), nil
	case "edit":
		return x.edit(l, f, s)
	case "answer":
		return x.answer(l, f, s)
	}
	return nil, mistaken("the rule %q is not built", s.Action)
}

func (x *exec) edit(l *link, f proxy.Filter, s *scenario.Step) (*proxy.Rule, error) {
	set, err := x.mapping(s, "set")
	if err != nil {
		return nil, err
	}
	return l.Edit(f, func(v oracle.Value) oracle.Value {
		for path, value := range set {
			put(v, strings.Split(path, "."), value)
		}
		return v
	}), nil
}

// put sets a field at a path; {$absent: true} takes it away.
func put(into any, path []string, value any) {
	key := path[0]
	switch part := into.(type) {
	case oracle.Value:
		if len(path) > 1 {
			put(part[key], path[1:], value)
			return
		}
		if m, ok := value.(map[string]any); ok && m["$absent"] == true {
			delete(part, key)
			return
		}
		part[key] = wireAny(value)
	case []any:
		i, ok := scenario.Int(key)
		if !ok || i < 0 || int(i) >= len(part) {
			return
		}
		if len(path) > 1 {
			put(part[i], path[1:], value)
			return
		}
		part[i] = wireAny(value)
	}
}

func (x *exec) answer(l *link, f proxy.Filter, s *scenario.Step) (*proxy.Rule, error) {
	fields, err := x.mapping(s, "value")
	if err != nil {
		return nil, err
	}
	form := oracle.Form(s.Text("form"))
	if form == "" {
		form = oracle.Reply
	}
	if code, ok := fields["code"].(string); ok && form == oracle.Refusal {
		row, known := x.spec.Error(code)
		if !known {
			return nil, mistaken("there is no error code %q", code)
		}
		fields["code"] = row.Number
	}
	value := wire(fields)
	return l.Answer(f, func(request oracle.Record) []oracle.Record {
		return []oracle.Record{{Message: request.Message, Form: form, Value: value}}
	}), nil
}

func (x *exec) remember(name string, l lifter) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if name == "" {
		x.unnamed++
		name = fmt.Sprintf("rule %d", x.unnamed)
	}
	if _, twice := x.rules[name]; twice {
		l.lift()
		return mistaken("the rule or fault %q exists already", name)
	}
	x.rules[name] = l
	return nil
}

func (x *exec) lifterOf(s *scenario.Step) (lifter, string, error) {
	name, err := x.word(s.Name)
	if err != nil {
		return lifter{}, "", err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	l, ok := x.rules[name]
	if !ok {
		return l, name, mistaken("there is no rule or fault %q", name)
	}
	return l, name, nil
}

func (x *exec) doRelease(_ context.Context, s *scenario.Step) error {
	l, name, err := x.lifterOf(s)
	if err != nil {
		return err
	}
	first, err := x.number(s, "first", 0)
	switch {
	case err != nil:
		return err
	case l.rule == nil:
		return mistaken("%q is a fault, which holds nothing; lift it", name)
	case first > 0:
		l.rule.ReleaseFirst(int(first))
	default:
		l.rule.Release()
	}
	return nil
}

func (x *exec) doLift(_ context.Context, s *scenario.Step) error {
	l, name, err := x.lifterOf(s)
	if err != nil {
		return err
	}
	l.lift()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.rules, name)
	return nil
}

func (x *exec) doFault(_ context.Context, s *scenario.Step) error {
	name, err1 := x.word(s.Name)
	as, err2 := x.text(s, "as")
	times, err3 := x.number(s, "times", 0)
	code, err4 := x.number(s, "code", 0)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	l, err := x.link(name)
	if err != nil {
		return err
	}
	var f *proxy.Fault
	switch s.Action {
	case "cut":
		f = l.Cut()
	case "reset":
		f = l.Reset()
	case "blackhole":
		f = l.BlackHole()
	case "freeze":
		f = l.Freeze(oracle.Direction(s.Text("dir")))
	case "refuse":
		f = l.Refuse(int(times))
	case "shut":
		f = l.Shut()
	case "auth_reject":
		f = l.AuthReject(int(times))
	case "ws_close":
		f = l.WSClose(uint16(code), "")
	case "mute_ping":
		f = l.MutePing()
	default:
		return mistaken("the fault %q is not built", s.Action)
	}
	return x.remember(as, lifter{fault: f})
}

func (x *exec) doInject(_ context.Context, s *scenario.Step) error {
	name, err := x.word(s.Name)
	if err != nil {
		return err
	}
	l, err := x.link(name)
	if err != nil {
		return err
	}
	r, err := x.record(recordOf(s))
	if err != nil {
		return err
	}
	return encoding(l.Inject(0, oracle.Direction(s.Text("dir")), r))
}
