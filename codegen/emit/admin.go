package emit

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("admin", adminFiles) }

// openAPIPath is the description of the admin interface, below the output folder.
const openAPIPath = "docs/openapi.json"

// adminFiles makes the types of the admin interface and its description for tools.
func adminFiles(spec *model.Spec) ([]File, error) {
	g := adminGen{spec, newNamer(spec)}
	files, err := renderAll(g.types())
	if err != nil {
		return nil, err
	}
	content, err := json.MarshalIndent(g.openAPI(), "", "  ")
	if err != nil {
		return nil, err
	}
	return append(files, File{Path: openAPIPath, Content: append(content, '\n')}), nil
}

type adminGen struct {
	*model.Spec
	names namer
}

// types makes package adminapi.
func (g adminGen) types() *goFile {
	f := newGoFile(g.Spec, adminAPIPath, "adminapi.go")
	f.PackageComment("// Package adminapi holds the JSON objects of the admin interface. Their description for other languages is generated/docs/openapi.json.")
	for _, t := range g.Admin.Types {
		f.Add(doc(sentence(fmt.Sprintf("%s is an object: %s", g.names.exported(t.Name), lower(t.Doc)))))
		f.Type().Id(g.names.exported(t.Name)).StructFunc(func(s *jen.Group) {
			for _, field := range t.Fields {
				tag := field.Name
				if field.Optional {
					tag += ",omitempty"
				}
				s.Add(doc(field.Doc))
				s.Id(g.names.exported(field.Name)).Add(g.goType(field)).Tag(map[string]string{"json": tag})
			}
		})
		f.Line()
		for _, field := range t.Fields {
			g.values(f, t, field)
		}
	}
	return f
}

// values makes a constant of each value of a text.
func (g adminGen) values(f *goFile, t *model.AdminType, field *model.AdminField) {
	if len(field.Values) == 0 {
		return
	}
	f.Add(doc(fmt.Sprintf("Values of %s of %s.", field.Name, t.Name)))
	f.Const().DefsFunc(func(c *jen.Group) {
		for _, v := range field.Values {
			c.Id(g.names.exported(t.Name, field.Name, v)).Op("=").Lit(v)
		}
	})
	f.Line()
}

func (g adminGen) goType(f *model.AdminField) jen.Code {
	if f.Elem != "" {
		return jen.Index().Add(g.goName(f.Elem))
	}
	return g.goName(f.Type)
}

func (g adminGen) goName(name string) jen.Code {
	switch name {
	case "string":
		return jen.String()
	case "bool":
		return jen.Bool()
	case "u32":
		return jen.Uint32()
	case "u64":
		return jen.Uint64()
	case "seconds":
		return jen.Float64()
	}
	return jen.Id(g.names.exported(name))
}

// object is one JSON object; encoding/json writes its members in the order of their names.
type object = map[string]any

// bearer is the name of the way in which the admin token is shown.
const bearer = "adminToken"

// openAPI is the description in the form of OpenAPI 3.1, whose schemas are those of JSON Schema 2020-12 and whose descriptions are Markdown.
func (g adminGen) openAPI() object {
	paths := object{}
	for _, p := range g.Admin.Paths {
		paths[p.Path] = object{"get": g.operation(p)}
	}
	schemas := object{}
	for _, t := range g.Admin.Types {
		schemas[t.Name] = adminSchema(t)
	}
	port := ""
	for _, l := range g.Broker.Listeners {
		if l.Transport == "admin" {
			port = l.Address
		}
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": g.Admin.Title, "version": g.Version, "description": markdown(g.Admin.Doc),
			"license":            object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
			"x-spec-fingerprint": fmt.Sprintf("%016x", g.Fingerprint),
		},
		"servers": []any{object{"url": "http://" + port, "description": "Where the admin listener is unless told otherwise."}},
		"paths":   paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{bearer: object{"type": "http", "scheme": "bearer", "description": "The admin token, where one is configured."}},
		},
	}
}

func (g adminGen) operation(p *model.AdminPath) object {
	responses := object{}
	for _, a := range p.Answers {
		responses[strconv.Itoa(a.Status)] = adminResponse(a)
	}
	op := object{"operationId": p.Name, "description": markdown(p.Doc), "responses": responses}
	op["security"] = []any{object{bearer: []any{}}, object{}} // without an admin token, none is asked for
	if p.Open {
		op["security"] = []any{}
	}
	for _, a := range g.Admin.Refusals {
		if !p.Open || !a.Token {
			responses[strconv.Itoa(a.Status)] = adminResponse(a)
		}
	}
	var parameters []any
	for _, q := range p.Parameters {
		parameters = append(parameters, adminParameter(q))
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	return op
}

func adminParameter(q *model.AdminParameter) object {
	schema := object{"type": "string"}
	example := any(q.Example)
	if q.Type == "u32" {
		schema = object{"type": "integer", "minimum": 1, "maximum": uint32(1<<32 - 1)}
		example = json.Number(q.Example)
	}
	return object{"name": q.Name, "in": "query", "required": q.Required, "description": markdown(q.Doc), "schema": schema, "example": example}
}

func adminResponse(a *model.AdminAnswer) object {
	media, schema := "application/json", object{"$ref": "#/components/schemas/" + a.Type}
	if a.Type == "text" {
		media, schema = "text/plain", object{"type": "string"}
	}
	return object{"description": markdown(a.Doc), "content": object{media: object{"schema": schema, "example": a.Example}}}
}

func adminSchema(t *model.AdminType) object {
	properties := object{}
	required := []any{}
	for _, f := range t.Fields {
		schema := adminFieldSchema(f)
		schema["description"] = markdown(f.Doc)
		properties[f.Name] = schema
		if !f.Optional {
			required = append(required, f.Name)
		}
	}
	return object{"type": "object", "description": markdown(t.Doc), "properties": properties, "required": required, "additionalProperties": false}
}

func adminFieldSchema(f *model.AdminField) object {
	if f.Elem != "" {
		return object{"type": "array", "items": adminTypeSchema(f.Elem)}
	}
	schema := adminTypeSchema(f.Type)
	if len(f.Values) > 0 {
		schema["enum"] = f.Values
	}
	if f.Pattern != "" {
		schema["pattern"] = f.Pattern
	}
	return schema
}

func adminTypeSchema(name string) object {
	switch name {
	case "string":
		return object{"type": "string"}
	case "bool":
		return object{"type": "boolean"}
	case "u32":
		return object{"type": "integer", "minimum": 0, "maximum": uint32(1<<32 - 1)}
	case "u64":
		return object{"type": "integer", "minimum": 0}
	case "seconds":
		return object{"type": "number", "minimum": 0}
	}
	return object{"$ref": "#/components/schemas/" + name}
}
