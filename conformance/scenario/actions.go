package scenario

// kind is the type of a parameter in the schema.
type kind string

const (
	aName     kind = "name"       // identifier of something in the scenario
	aText     kind = "text"       // any text
	aCommand  kind = "command"    // lease.acquire
	aNumber   kind = "number"     // whole number, 0 or more, or a variable
	aPositive kind = "positive"   // whole number, 1 or more, or a variable
	aSigned   kind = "signed"     // whole number, or a variable
	aFlag     kind = "flag"       // true or false
	aMap      kind = "map"        // mapping of values
	aValue    kind = "value"      // anything
	aOK       kind = "ok"         // expected result
	anErr     kind = "error"      // expected failure: a code name or a mapping
	aTrue     kind = "true"       // true
	aSave     kind = "save"       // variable: path into the result
	aSteps    kind = "steps"      // list of steps
	aDir      kind = "dir"        // up, down
	aForm     kind = "form"       // request, reply, refusal, push, control
	aMoment   kind = "moment"     // read, delivered
	aSide     kind = "side"       // broker, driver
	aHex      kind = "hex"        // pairs of hexadecimal digits
	aScript   kind = "script"     // script of a fake broker
	anEnd     kind = "end"        // any, fin, rst, ws, upgrade, dial
	aControl  kind = "control"    // ping, pong, close
	aFrames   kind = "frames"     // list of filters
	aRecords  kind = "records"    // list of records
	aNameList kind = "name_list"  // list of names
	aClosing  kind = "closing"    // any, fin, rst, ws
	aWhen     kind = "when"       // cells of the matrix in which the step is done
	aValues   kind = "list"       // list of values
	aScope    kind = "scope"      // all, driver, broker
	aSigning  kind = "token_form" // HS256, …
	aTLS      kind = "tls_form"   // good, …
	aDoor     kind = "door"       // anonymous, token
)

// target is what the value of the key of an action is.
type target string

const (
	toName    target = "name"    // one identifier; parameters are keys beside it
	toCommand target = "command" // the name of a command; parameters are keys beside it
	toMap     target = "map"     // a mapping of parameters
	toScope   target = "scope"   // one of all, driver, broker
)

// param is one parameter of an action.
type param struct {
	name     string
	kind     kind
	required bool
	doc      string
}

// action is one thing that a step can do.
type action struct {
	name   string
	target target
	params []param
	oneOf  []string // exactly one of these parameters
	atMost []string // at most one of these parameters
	doc    string
}

func need(name string, k kind, doc string) param { return param{name, k, true, doc} }
func may(name string, k kind, doc string) param  { return param{name, k, false, doc} }

// where is the parameters that choose frames. A filter of a proxy rule stands on a link; a trace is read of a link or of a peer.
func where(more ...param) []param {
	return append([]param{
		may("dir", aDir, "up: to the broker; down: to the client"),
		may("message", aCommand, "message by its name in spec/domains"),
		may("form", aForm, "request, reply, refusal, push or control"),
		may("where", aMap, "matcher over the fields of the frame"),
		may("label", aNumber, "label of the frame; 0: it has none"),
		may("size", aValue, "matcher over its bytes, with its label and without what the transport puts in front"),
	}, more...)
}

// control lets a filter of a trace choose what only a WebSocket has.
var control = may("control", aControl, "a WebSocket control frame instead of a record; where: {payload: …}")

// rule is the parameters of a rule of a proxy.
func rule(more ...param) []param {
	return append(where(
		need("link", aName, "link whose frames it applies to"),
		may("nth", aPositive, "begin with the nth frame that the filter chooses (default 1)"),
		may("times", aNumber, "apply to so many frames (default 1; 0: all)"),
		may("as", aName, "name of the rule, for release, lift and await"),
	), more...)
}

var outcome = []string{"ok", "err", "cancelled", "any"}

// expectation is the parameters that say how a command must end.
func expectation(more ...param) []param {
	return append([]param{
		may("ok", aOK, "matcher over the result; without ok, err, cancelled and any the command must succeed"),
		may("err", anErr, "name of an error code, or matcher over class, code, name, number, retry, outcome, wire, text"),
		may("cancelled", aTrue, "the command must end as cancelled by its caller"),
		may("any", aTrue, "the command may end in any way"),
		may("save", aSave, "variables that are set from the result: {name: path}"),
	}, more...)
}

func command(more ...param) []param {
	return append([]param{
		may("on", aName, "client or peer that does it; without it the driver itself"),
		may("of", aName, "handle that it is done to"),
		may("args", aMap, "arguments, by the field names of the spec"),
		may("as", aName, "name of the handle that it makes"),
		may("lane", aName, "commands of one lane run one after the other"),
	}, more...)
}

// actions is everything that a step can do. The schema and the checks of the loader are made of this table.
var actions = []action{
	// What takes part.
	{name: "link", target: toName, doc: "Puts a proxy in front of a broker; connect does it by itself.", params: []param{
		may("to", aName, "broker or fake broker behind it (default b1)"),
		may("tls", aTLS, "clients reach it by TLS, with a certificate of this kind"),
	}},
	{name: "fake", target: toName, doc: "Starts a scripted broker; a link or peer with `to` leads to it.", params: []param{
		may("script", aScript, "hello, rules and mute, as fakebroker.Script has them (default: a hello and nothing else)"),
	}},
	{name: "act", target: toName, doc: "Lets a fake broker do something now.", params: []param{
		need("actions", aValues, "actions of a script: reply, send, together, message, raw, declare, send_hello, close, reset"),
		may("conn", aPositive, "number of the connection (default the one that was opened last)"),
	}},
	{name: "open_gate", target: toName, doc: "Lets the rules of a fake broker go on that wait at a gate.", params: []param{
		need("gate", aName, "name after `wait` in the script"),
	}},
	{name: "followed", target: toName, doc: "Waits until a rule of a fake broker was followed n times.", params: []param{
		need("rule", aName, "name of the rule"),
		may("n", aPositive, "how often (default 1)"),
	}},
	{name: "connect", target: toName, doc: "Opens a client of the driver through a link.", atMost: outcome, params: expectation(
		may("through", aName, "link that it uses (default the link of its own name, which is made when it is missing)"),
		may("args", aMap, "arguments of client.connect beside the address"),
		may("call", aName, "do not wait; `join` does"),
	)},
	{name: "peer", target: toName, doc: "Opens a raw wire session, straight to the broker or through a link.", params: []param{
		may("through", aName, "link that it uses (default: none)"),
		may("to", aName, "broker or fake broker that it dials (default b1)"),
		may("handshake", aFlag, "wait for SERVER_HELLO (default true)"),
		may("greet", aFlag, "send CONNECT (default true)"),
		may("token", aText, "token of CONNECT (default none; in the column token one with all permissions)"),
		may("door", aDoor, "kind of listener that it dials (default as the column auth says)"),
		may("labels", aFlag, "label requests (default as the column of the matrix says)"),
		may("capabilities", aNameList, "capabilities that CLIENT_HELLO wants (default all that are announced)"),
		may("negotiate", aFlag, "answer SERVER_HELLO with CLIENT_HELLO (default as the column labels says)"),
		may("pong", aFlag, "answer PING by itself (default true)"),
		may("path", aText, "path of the upgrade of a WebSocket"),
		may("headers", aValues, "further lines of the upgrade"),
		may("read_buffer", aPositive, "bytes of the buffer of the socket for what the broker sends"),
		may("fails", anEnd, "the connection cannot be opened: any, fin, rst, ws, upgrade, or dial when nobody listens"),
		may("status", aNumber, "with fails: upgrade the status of the answer"),
		may("save", aSave, "variables that are set from SERVER_HELLO"),
	}},
	{name: "pause", target: toName, doc: "Lets a peer stop reading."},
	{name: "resume", target: toName, doc: "Lets a peer read again."},
	{name: "disconnect", target: toName, doc: "Closes the connection of a peer.", params: []param{
		may("how", aClosing, "any (default: FIN, and a close frame on WebSocket), fin (the peer goes on reading) or rst"),
	}},

	{name: "mint", target: toName, doc: "Makes a token and sets a variable to it. What is not said is right for the broker at hand.", params: []param{
		may("family", aText, "value of the claim that names the family (default dev; ops is another family)"),
		may("permissions", aValues, "claim permissions (default all, of every domain)"),
		may("expires_in_ms", aSigned, "when it expires, from the time of day of b1 on; what is no whole second is cut off (default: long after)"),
		may("valid_in_ms", aSigned, "from when on it is valid (claim nbf, default none)"),
		may("claims", aMap, "further claims; they win over those above"),
		may("without", aNameList, "claims that are left out"),
		may("payload", aText, "the claims as text, as they are"),
		may("header", aMap, "further members of the header; they win"),
		may("algorithm", aSigning, "how it is signed (default HS256)"),
		may("secret", aText, "secret of HS… (default that of the broker)"),
		may("parts", aName, "variable that is set to its parts: header, payload, signature"),
	}},

	// Commands.
	{name: "do", target: toCommand, doc: "Does a command and waits for its end.", params: command(expectation()...), atMost: outcome},
	{name: "start", target: toCommand, doc: "Starts a command; `join` waits for its end.", params: command(need("call", aName, "name of the running command"))},
	{name: "join", target: toName, doc: "Waits for the end of a running command; for a peer for its next reply.", params: expectation(), atMost: outcome},
	{name: "pending", target: toName, doc: "Checks that a running command has no answer so far."},
	{name: "cancel", target: toName, doc: "Cancels a running command of a driver.", params: expectation(), atMost: outcome},

	// Raw frames.
	{name: "send", target: toName, doc: "Sends records or bytes of a peer.", oneOf: []string{"message", "records", "hex"}, params: []param{
		may("message", aCommand, "message of the record"),
		may("form", aForm, "form of the record (default the one that its message has)"),
		may("value", aMap, "its fields"),
		may("label", aNumber, "label in front of it"),
		may("records", aRecords, "several records in one transport message"),
		may("hex", aHex, "bytes of one transport message, as they are"),
		may("raw", aFlag, "hex is put on the stream as it is, without a frame"),
		may("chunk", aPositive, "with raw: bytes of each write"),
		may("declare", aNumber, "the transport message says that it has so many bytes"),
	}},
	{name: "expect", target: toName, doc: "Waits for the next frame that a peer or a fake broker receives and the filter chooses.", params: where(
		may("next", aFlag, "it must be the very next frame"),
		may("save", aSave, "variables that are set from its fields"),
		control,
	)},
	{name: "closed", target: toName, doc: "Waits until the other side has closed the connection of a peer.", params: []param{
		may("how", aClosing, "any (default), fin, rst or ws"),
		may("code", aNumber, "close code of a WebSocket"),
		may("reason", aName, "close reason of spec/wire.yaml: its code and text on a WebSocket, an orderly end on TCP"),
	}},

	// Frames of links and peers.
	{name: "await", target: toMap, doc: "Waits until n frames that the filter chooses have passed.", oneOf: []string{"link", "peer"}, params: where(
		may("link", aName, "link whose trace is read"),
		may("peer", aName, "peer whose trace is read"),
		may("n", aPositive, "number of frames (default 1)"),
		may("since", aName, "count from a mark on (default from the start)"),
		may("at", aMoment, "read: reached the proxy; delivered (default): left it"),
		may("save", aSave, "variables that are set from the fields of the nth frame"),
		control,
	)},
	{name: "count", target: toMap, doc: "Checks how many frames that the filter chooses have passed.", oneOf: []string{"link", "peer"}, params: where(
		may("link", aName, "link whose trace is read"),
		may("peer", aName, "peer whose trace is read"),
		may("is", aNumber, "exactly so many"),
		may("min", aNumber, "at least so many"),
		may("max", aNumber, "at most so many"),
		may("since", aName, "count from a mark on"),
		may("at", aMoment, "read or delivered (default)"),
		may("shared", aFlag, "only frames that came in one transport message with another one"),
		control,
	)},
	{name: "order", target: toMap, doc: "Checks that frames passed in this order; others may stand between them.", oneOf: []string{"link", "peer"}, params: []param{
		may("link", aName, "link whose trace is read"),
		may("peer", aName, "peer whose trace is read"),
		need("frames", aFrames, "filters, each finds the first frame after the one before"),
		may("since", aName, "read from a mark on"),
		may("at", aMoment, "read or delivered (default)"),
	}},
	{name: "mark", target: toName, doc: "Names this moment; `since` counts frames and events from it on."},

	// Rules of a proxy.
	{name: "hold", target: toMap, doc: "Keeps a frame and all behind it in its direction until release.", params: rule()},
	{name: "hold_alone", target: toMap, doc: "Keeps a frame until release; frames behind it overtake it.", params: rule()},
	{name: "delay", target: toMap, doc: "Delivers a frame later.", params: rule(need("ms", aPositive, "real milliseconds"))},
	{name: "drop", target: toMap, doc: "Loses a frame.", params: rule()},
	{name: "duplicate", target: toMap, doc: "Delivers a frame twice.", params: rule()},
	{name: "reorder", target: toMap, doc: "Keeps a frame back until the next push has been delivered.", params: rule()},
	{name: "corrupt", target: toMap, doc: "Changes one byte of a frame.", params: rule(
		need("byte", aNumber, "offset in the record"),
		may("xor", aPositive, "bits to turn over (default 255)"),
	)},
	{name: "split", target: toMap, doc: "Delivers a frame in writes of one byte.", params: rule()},
	{name: "coalesce", target: toMap, doc: "Delivers a frame in one write with the frames behind it.", params: rule(may("n", aPositive, "frames of the write (default 2)"))},
	{name: "pack", target: toMap, doc: "Delivers a frame in one transport message with the frames behind it.", params: rule(may("n", aPositive, "frames of the message (default 2)"))},
	{name: "oversize", target: toMap, doc: "Delivers a frame with a larger size in front.", params: rule(may("size", aNumber, "the size (default one more than the receiver may accept)"))},
	{name: "edit", target: toMap, doc: "Changes fields of a frame.", params: rule(need("set", aMap, "new values by field name; a path may be a.b or items.0.route"))},
	{name: "answer", target: toMap, doc: "Keeps requests from the broker and answers them.", params: rule(
		may("form", aForm, "form of the answer (default reply; refusal)"),
		need("value", aMap, "its fields; the code of a refusal may be its name"),
	)},
	{name: "inject", target: toName, doc: "Delivers a record on the newest connection of a link that nobody sent.", params: []param{
		need("dir", aDir, "where it goes"),
		need("message", aCommand, "its message"),
		may("form", aForm, "its form"),
		may("value", aMap, "its fields"),
		may("label", aNumber, "label in front of it"),
	}},
	{name: "release", target: toName, doc: "Delivers what a rule holds, in order; the rule goes on for frames that it has not chosen yet.", params: []param{
		may("first", aPositive, "only so many, the oldest (default all)"),
	}},
	{name: "lift", target: toName, doc: "Ends a rule or a fault; what it holds is delivered, what a black hole has swallowed is lost."},

	// Faults of a connection.
	{name: "cut", target: toName, doc: "Ends the connections of a link with FIN on both sides."},
	{name: "reset", target: toName, doc: "Ends the connections of a link with RST on both sides."},
	{name: "blackhole", target: toName, doc: "Swallows everything on a link in both directions.", params: []param{
		may("as", aName, "name, for lift"),
	}},
	{name: "freeze", target: toName, doc: "Stops reading from one side of a link.", params: []param{
		need("dir", aDir, "direction whose reading stops"),
		may("as", aName, "name, for lift"),
	}},
	{name: "refuse", target: toName, doc: "Refuses the next connections of a link.", params: []param{
		may("times", aPositive, "how many (default all until lift)"),
		may("as", aName, "name, for lift"),
	}},
	{name: "shut", target: toName, doc: "Stops listening on the addresses of a link until lift; open connections go on.", params: []param{
		may("as", aName, "name, for lift"),
	}},
	{name: "auth_reject", target: toName, doc: "Closes the next connections of a link where a broker closes for a bad token.", params: []param{
		may("times", aPositive, "how many (default all until lift)"),
		may("as", aName, "name, for lift"),
	}},
	{name: "ws_close", target: toName, doc: "Closes the WebSockets of a link with a code.", params: []param{
		need("code", aPositive, "close code"),
	}},
	{name: "mute_ping", target: toName, doc: "Loses every PING and PONG of a link.", params: []param{
		may("as", aName, "name, for lift"),
	}},
	{name: "swap", target: toName, doc: "Lets a link lead to another broker from its next connection on.", params: []param{
		need("to", aName, "broker or fake broker"),
	}},

	// Events of a driver.
	{name: "event", target: toMap, doc: "Waits for the next event of a handle that the filter chooses.", params: []param{
		need("of", aName, "handle, or client"),
		need("ev", aText, "kind of the event: observer.state"),
		may("where", aMap, "matcher over its fields"),
		may("next", aFlag, "it must be the very next event of the handle"),
		may("save", aSave, "variables that are set from its fields"),
	}},
	{name: "events", target: toMap, doc: "Checks how many events of a handle the filter chooses.", params: []param{
		need("of", aName, "handle, or client"),
		may("ev", aText, "kind of the event"),
		may("where", aMap, "matcher over its fields"),
		may("is", aNumber, "exactly so many"),
		may("min", aNumber, "at least so many"),
		may("max", aNumber, "at most so many"),
		may("since", aName, "count from a mark on"),
	}},

	// Time.
	{name: "advance", target: toMap, doc: "Moves the virtual clocks; both by the same.", oneOf: []string{"ms", "s"}, params: []param{
		may("ms", aPositive, "milliseconds"),
		may("s", aPositive, "seconds"),
		may("first", aSide, "whose clock moves first (default broker)"),
		may("only", aSide, "move only this clock"),
	}},
	{name: "settle", target: toScope, doc: "Waits until nobody has work left: driver, proxies, broker."},
	{name: "wall", target: toMap, doc: "Moves the wall clock and not the clock that timers use.", params: []param{
		need("ms", aSigned, "milliseconds; negative goes back"),
		need("side", aSide, "whose wall clock"),
	}},

	// Broker processes.
	{name: "restart_broker", target: toName, doc: "Kills a broker and starts it anew on the same addresses."},
	{name: "stop_broker", target: toName, doc: "Kills a broker."},
	{name: "start_broker", target: toName, doc: "Starts a stopped broker on its old addresses."},
	{name: "pause_broker", target: toName, doc: "Stops a broker process without closing its sockets."},
	{name: "resume_broker", target: toName, doc: "Lets a paused broker go on."},
	{name: "drain_broker", target: toName, doc: "Asks a broker to shut down in order (SIGTERM)."},

	{name: "broker_stats", target: toName, doc: "Checks what a broker holds, by its control port: sessions, leases, waiters, registrations, snapshots, timers, …", params: []param{
		need("is", aMap, "matcher"),
	}},
	{name: "broker_holds", target: toName, doc: "Checks the leases that a broker holds, sorted by route, by its control port.", params: []param{
		may("selector", aText, "which ones (default lease://$REALM/**)"),
		may("family", aPositive, "of which family (default that of anonymous sessions)"),
		need("is", aValue, "matcher over the list"),
	}},

	// Flow.
	{name: "repeat", target: toMap, doc: "Does steps several times.", params: []param{
		need("times", aPositive, "how often"),
		may("var", aName, "variable that counts from 1"),
		need("steps", aSteps, "what is done"),
	}},
	{name: "each", target: toMap, doc: "Does steps for each value of a list.", params: []param{
		need("in", aValues, "values"),
		need("var", aName, "variable that holds the value"),
		need("steps", aSteps, "what is done"),
	}},
	{name: "eventually", target: toMap, doc: "Does steps again and again until all of them pass.", params: []param{
		need("steps", aSteps, "what is done; it must be harmless to do it twice"),
	}},
	{name: "background", target: toName, doc: "Does steps beside the following ones until `end`.", params: []param{
		may("times", aPositive, "how often at most (default until end)"),
		may("every_ms", aPositive, "real pace in milliseconds (default as fast as it goes)"),
		may("var", aName, "variable that counts from 1"),
		need("steps", aSteps, "what is done"),
	}},
	{name: "end", target: toName, doc: "Ends a background and waits for it; without times it stops after its current round."},
	{name: "set", target: toMap, doc: "Sets variables."},
	{name: "check", target: toMap, doc: "Checks a value.", params: []param{
		need("value", aValue, "value, usually a variable"),
		need("is", aValue, "matcher"),
	}},
}

// byName is the table of actions by name.
var byName = func() map[string]*action {
	m := make(map[string]*action, len(actions))
	for i := range actions {
		m[actions[i].name] = &actions[i]
	}
	return m
}()

// Actions returns the names of all actions in the order of the reference.
func Actions() []string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = a.name
	}
	return names
}
