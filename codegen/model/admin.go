package model

// Admin is the admin interface of the broker.
type Admin struct {
	Pos      Pos
	Title    string
	Doc      string
	Paths    []*AdminPath
	Refusals []*AdminAnswer // of every path, before it is looked at
	Types    []*AdminType
}

// AdminPath is one path of the admin listener. It answers GET.
type AdminPath struct {
	Named
	Path       string
	Open       bool // it needs no admin token
	Parameters []*AdminParameter
	Answers    []*AdminAnswer
}

// AdminParameter is one parameter of the query.
type AdminParameter struct {
	Named
	Type     string // string, u32
	Required bool
	Example  string
}

// AdminAnswer is one answer. Its type is text or the name of a type.
type AdminAnswer struct {
	Pos     Pos
	Status  int
	Token   bool // open paths do not answer it
	Type    string
	Doc     string
	Example any // as encoding/json decodes it, numbers as json.Number
}

// AdminType is one JSON object.
type AdminType struct {
	Named
	Fields []*AdminField
}

// AdminField is one member of an object. Elem is the type of the members of a list, empty when it is none.
type AdminField struct {
	Named
	Type     string
	Elem     string
	Optional bool
	Values   []string
	Pattern  string
}

// AdminScalars are the types of fields that are no objects.
var AdminScalars = []string{"string", "bool", "u32", "u64", "seconds"}

// Type returns the type of that name, nil when there is none.
func (a *Admin) Type(name string) *AdminType {
	for _, t := range a.Types {
		if t.Name == name {
			return t
		}
	}
	return nil
}
