package scenario

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// parts is the schema taken apart, for a quick look at files that are right, as nearly all are. A step of the whole schema is compared with
// every action; here it is compared with its own.
type parts struct {
	head  *jsonschema.Schema            // of a file whose steps were taken out
	steps map[string]*jsonschema.Schema // by action, of a step whose inner steps were taken out
}

// anySteps stands for steps that are looked at by themselves.
var anySteps = object{"type": "array", "minItems": 1}

// split is the schema taken apart. It is made of the same document.
var split = sync.OnceValue(func() parts {
	whole := document()
	definitions, _ := whole["$defs"].(object)
	properties, _ := whole["properties"].(object)
	properties["steps"], properties["always"], definitions["steps"] = anySteps, anySteps, anySteps
	delete(definitions, "step")
	delete(whole, "$id")
	p := parts{head: compile(SchemaID+"/head", whole), steps: map[string]*jsonschema.Schema{}}
	for i := range actions {
		one := actions[i].only()
		one["$schema"], one["$defs"] = whole["$schema"], definitions
		p.steps[actions[i].name] = compile(SchemaID+"/"+actions[i].name, one)
	}
	return p
})

func compile(id string, schema object) *jsonschema.Schema {
	text, err := json.Marshal(schema)
	if err != nil {
		panic(err) // plain maps, lists and texts
	}
	c := jsonschema.NewCompiler()
	c.LoadURL = nil
	if err := c.AddResource(id, bytes.NewReader(text)); err != nil {
		panic(err)
	}
	return c.MustCompile(id)
}

// sound tells whether the schema accepts a file. False may also mean that only the whole schema can tell.
func sound(file any) bool {
	m, ok := file.(map[string]any)
	return ok && split().head.Validate(file) == nil && soundSteps(m["steps"]) && (m["always"] == nil || soundSteps(m["always"]))
}

func soundSteps(v any) bool {
	list, ok := v.([]any)
	if !ok {
		return false
	}
	for _, member := range list {
		step, ok := member.(map[string]any)
		if !ok || !soundStep(step) {
			return false
		}
	}
	return true
}

func soundStep(step map[string]any) bool {
	own := ""
	for key := range step {
		if byName[key] == nil {
			continue
		}
		if own != "" {
			return false // a parameter may have the name of an action: the whole schema decides
		}
		own = key
	}
	schema := split().steps[own]
	if schema == nil || schema.Validate(step) != nil {
		return false
	}
	body := step
	if byName[own].target == toMap {
		body, _ = step[own].(map[string]any)
	}
	inner, nested := body["steps"]
	return !nested || soundSteps(inner)
}
