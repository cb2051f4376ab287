package scenario

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// SchemaID is the address under which the schema knows itself. Nothing is ever fetched from it.
const SchemaID = "https://fitzwire.example/conformance/scenario.schema.json"

type object = map[string]any

// Schema is the JSON schema of a scenario file, made of the table of actions; conformance/scenarios/schema.json is its text.
func Schema() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document()); err != nil {
		panic(err) // the document is made of plain maps, lists and texts
	}
	return b.Bytes()
}

func document() object {
	return object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"$id":                  SchemaID,
		"title":                "Scenario of the conformance suite",
		"type":                 "object",
		"additionalProperties": false,
		"required":             []any{"id", "title", "subject", "time", "steps"},
		"properties": object{
			"id":          object{"type": "string", "pattern": "^[A-Z]+-[A-Z0-9-]*[A-Z0-9]$", "description": "Name of the scenario, equal to the name of its file without .yaml."},
			"title":       object{"type": "string", "minLength": 1, "description": "What is shown, as one sentence without a full stop."},
			"proves":      words("Clauses of spec/clauses.yaml that are shown to hold by something that is accepted."),
			"refuses":     words("Clauses of spec/clauses.yaml that are shown to hold by something that is refused."),
			"codes":       words("Error codes of spec/errors.yaml that are seen, by name."),
			"subject":     object{"enum": []any{"client", "broker"}, "description": "client: judges a client behind a driver; broker: judges a broker by raw peers only."},
			"time":        object{"enum": []any{"virtual", "real"}, "description": "Clock of broker and driver."},
			"needs":       words("Features of its hello without which a driver is not asked."),
			"transports":  axis("tcp", "ws"),
			"labels":      axis("on", "off"),
			"auth":        axis("anonymous", "token"),
			"auth_reason": object{"type": "string", "minLength": 1, "description": "Why the scenario runs in one column of auth only; auth needs it then."},
			"budget_ms":   object{"type": "integer", "minimum": 1, "maximum": 120000, "description": "Real time that the scenario may take; every wait ends with it (default 10000)."},
			"exclusive":   object{"type": "boolean", "description": "Broker and driver processes of its own, also when it could share them."},
			"broker":      ref("settings"),
			"brokers":     object{"type": "object", "propertyNames": ref("name"), "additionalProperties": ref("settings"), "description": "Further brokers by name; b1 is the default one."},
			"vars":        object{"type": "object", "propertyNames": ref("name"), "description": "Variables, read as $name."},
			"steps":       object{"type": "array", "minItems": 1, "items": ref("step"), "description": "What is done, one after the other."},
			"always":      object{"type": "array", "minItems": 1, "items": ref("step"), "description": "Steps count, order, events and check, done over the whole case at its end."},
		},
		"$defs": definitions(),
	}
}

func ref(name string) object { return object{"$ref": "#/$defs/" + name} }

func words(doc string) object {
	return object{"type": "array", "minItems": 1, "uniqueItems": true, "items": object{"type": "string", "minLength": 1}, "description": doc}
}

func axis(values ...any) object {
	return object{"type": "array", "minItems": 1, "uniqueItems": true, "items": object{"enum": values}, "description": "Column of the matrix."}
}

func definitions() object {
	variable := object{"type": "string", "pattern": `^\$[A-Za-z{]`}
	number := func(doc string, minimum int) object {
		return object{"description": doc, "anyOf": []any{object{"type": "integer", "minimum": minimum}, variable, object{"type": "object", "minProperties": 1}}}
	}
	filter := object{}
	for _, p := range where() {
		filter[p.name] = typed(p)
	}
	record := object{
		"message": typed(need("message", aCommand, "message of the record")),
		"form":    typed(may("form", aForm, "form of the record")),
		"value":   typed(may("value", aMap, "its fields")),
		"label":   typed(may("label", aNumber, "label in front of it")),
		"hex":     typed(may("hex", aHex, "bytes of the record, as they are")),
	}
	return object{
		"step": step(),
		"settings": object{"type": "object", "additionalProperties": false, "description": "Settings of a broker.", "properties": object{
			"settings": object{"type": "object", "description": "Settings of spec/broker.yaml by name; limits is a mapping of bounds."},
		}},
		"name":       object{"type": "string", "minLength": 1, "pattern": `^([A-Za-z_][A-Za-z0-9_]*)?(\$\{?[A-Za-z_][A-Za-z0-9_.]*\}?)?$`, "description": "A name: letters, digits and _; it may be or end in a variable: $row.peer, w$i."},
		"text":       object{"type": "string", "description": "Text."},
		"command":    object{"type": "string", "pattern": `^[a-z_]+(\.[a-z_]+)*$`, "description": "Words of small letters with dots between them: lease.acquire."},
		"number":     number("A whole number from 0 on, or a variable.", 0),
		"positive":   number("A whole number from 1 on, or a variable.", 1),
		"signed":     object{"description": "A whole number, or a variable.", "anyOf": []any{object{"type": "integer"}, variable}},
		"flag":       object{"type": "boolean", "description": "true or false."},
		"map":        object{"anyOf": []any{object{"type": "object"}, variable}, "description": "Values by name, or a variable that holds them."},
		"value":      object{"description": "Any value."},
		"ok":         object{"anyOf": []any{object{"type": "object"}, variable}, "description": "Matcher over the result; {} accepts any."},
		"error":      object{"anyOf": []any{object{"type": "string", "minLength": 1}, object{"type": "object"}}, "description": "Name of an error code, or matcher over the failure."},
		"true":       object{"const": true, "description": "true."},
		"save":       object{"type": "object", "minProperties": 1, "propertyNames": ref("name"), "additionalProperties": object{"type": "string"}, "description": "Variables and where in the result they are: {token: fencing_token, first: items.0.route}; a path of one dot is all of it."},
		"steps":      object{"type": "array", "minItems": 1, "items": ref("step"), "description": "Steps."},
		"dir":        object{"enum": []any{"up", "down"}, "description": "up: to the broker; down: to the client."},
		"form":       object{"enum": []any{"request", "reply", "refusal", "push", "control"}, "description": "Form of a record."},
		"moment":     object{"enum": []any{"read", "delivered"}, "description": "read: reached the proxy; delivered: left it."},
		"side":       object{"enum": []any{"broker", "driver"}, "description": "broker or driver."},
		"hex":        object{"type": "string", "pattern": `^(([0-9a-fA-F]{2}| )*|\$[A-Za-z_{][A-Za-z0-9_.}]*)$`, "description": "Pairs of hexadecimal digits, or a variable that holds them; spaces are ignored."},
		"closing":    object{"anyOf": []any{object{"enum": []any{"any", "fin", "rst", "ws"}}, variable}, "description": "How a connection ends: any, fin, rst or ws."},
		"scope":      object{"enum": []any{"all", "driver", "broker"}, "description": "Who settles."},
		"list":       object{"anyOf": []any{object{"type": "array", "minItems": 1}, variable}, "description": "List of values, or a variable that holds one."},
		"token_form": object{"enum": []any{"HS256", "HS384", "HS512", "RS256", "none"}, "description": "How a token is signed."},
		"tls_form":   object{"anyOf": []any{object{"enum": []any{"good", "other_name", "other_authority", "expired", "old_version"}}, variable}, "description": "Certificate of a link: good, other_name, other_authority, expired, old_version."},
		"door":       object{"enum": []any{"anonymous", "token"}, "description": "Kind of listener."},
		"name_list":  object{"type": "array", "uniqueItems": true, "items": ref("name"), "description": "List of names."},
		"when":       object{"type": "object", "additionalProperties": false, "minProperties": 1, "description": "Do the step only in these cells of the matrix.", "properties": object{"transport": object{"enum": []any{"tcp", "ws"}}, "labels": object{"enum": []any{"on", "off"}}, "auth": object{"enum": []any{"anonymous", "token"}}}},
		"filter":     object{"type": "object", "additionalProperties": false, "minProperties": 1, "properties": filter, "description": "Chooses frames."},
		"frames":     object{"type": "array", "minItems": 2, "items": ref("filter"), "description": "Filters in their order."},
		"record":     object{"type": "object", "additionalProperties": false, "minProperties": 1, "properties": record, "description": "One record: message and value, or hex."},
		"records":    object{"anyOf": []any{object{"type": "array", "minItems": 1, "items": ref("record")}, variable, object{"type": "object", "required": []any{opRange}}}, "description": "Records, as a list, a variable that holds one, or {$list}."},
		"script":     object{"type": "object", "additionalProperties": false, "properties": object{"hello": object{"type": "object"}, "rules": object{"type": "array", "items": object{"type": "object"}}, "mute": object{"type": "boolean"}}, "description": "Script of a fake broker."},
		"end":        object{"enum": []any{"any", "fin", "rst", "ws", "upgrade", "dial"}, "description": "How a connection ends, or cannot be opened."},
		"control":    object{"enum": []any{"ping", "pong", "close"}, "description": "Control frame of a WebSocket."},
	}
}

func typed(p param) object {
	o := ref(string(p.kind))
	o["description"] = p.doc
	return o
}

// step is the schema of a step: exactly one action, and for each action the keys that may stand beside it.
func step() object {
	properties := object{"when": typed(may("when", aWhen, "Do the step only in these cells of the matrix."))}
	var choices []any
	rules := object{} // by action, so that only that of the action is looked at
	for _, a := range actions {
		choices = append(choices, object{"required": []any{a.name}})
		properties[a.name], rules[a.name] = a.property(), a.rule()
	}
	return object{
		"type": "object", "minProperties": 1, "properties": properties, "dependentSchemas": rules, "oneOf": choices,
		"description": "One step: the key of its action, and the keys that the action knows.",
	}
}

// property is the schema of the value of the key of an action.
func (a *action) property() object {
	if a.target == toMap {
		return a.body()
	}
	o := ref(map[target]string{toName: "name", toCommand: "command", toScope: "scope"}[a.target])
	o["description"] = a.doc
	return o
}

// rule is the schema of the keys beside that of an action.
func (a *action) rule() object {
	if a.target == toMap {
		return object{"propertyNames": object{"enum": []any{a.name, "when"}}}
	}
	return a.besides()
}

// only is the schema of a step of one action: what step says of it, without a look at the other actions. Steps inside of it are checked
// as steps of their own.
func (a *action) only() object {
	o := a.rule()
	when := typed(may("when", aWhen, ""))
	properties, _ := o["properties"].(object)
	if properties == nil {
		properties = object{}
	}
	properties["when"], properties[a.name] = when, a.property()
	o["type"], o["required"], o["properties"] = "object", append([]any{a.name}, needed(o)...), properties
	return o
}

func needed(o object) []any {
	names, _ := o["required"].([]any)
	return names
}

// body is the schema of the mapping under the key of an action.
func (a *action) body() object {
	o := object{"type": "object", "description": a.doc}
	if len(a.params) == 0 {
		o["minProperties"] = 1
		o["propertyNames"] = ref("name")
		return o
	}
	o["additionalProperties"] = false
	a.describe(o)
	return o
}

// besides is the schema of the keys beside the key of an action.
func (a *action) besides() object {
	o := object{}
	a.describe(o)
	names := []any{a.name, "when"}
	for _, p := range a.params {
		names = append(names, p.name)
	}
	o["propertyNames"] = object{"enum": names}
	return o
}

func (a *action) describe(o object) {
	properties, required := object{}, []any{}
	for _, p := range a.params {
		properties[p.name] = typed(p)
		if p.required {
			required = append(required, p.name)
		}
	}
	if len(properties) > 0 {
		o["properties"] = properties
	}
	if len(required) > 0 {
		o["required"] = required
	}
	if len(a.oneOf) > 0 {
		var choices []any
		for _, name := range a.oneOf {
			choices = append(choices, object{"required": []any{name}})
		}
		o["oneOf"] = choices
	}
	if len(a.atMost) > 0 {
		o["not"] = object{"anyOf": pairs(a.atMost)}
	}
}

// pairs is a schema for each two names that stand together.
func pairs(names []string) []any {
	var out []any
	for i, a := range names {
		for _, b := range names[i+1:] {
			out = append(out, object{"required": []any{a, b}})
		}
	}
	return out
}

// keys returns the sorted keys of a mapping.
func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
