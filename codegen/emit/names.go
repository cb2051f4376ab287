package emit

import (
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

// namer makes Go names out of names of the specification.
type namer struct {
	acronyms map[string]bool
	session  string // domain whose names stand alone
}

func newNamer(spec *model.Spec) namer {
	n := namer{acronyms: map[string]bool{}, session: sessionDomain(spec)}
	for _, a := range spec.SDK.Acronyms {
		n.acronyms[a] = true
	}
	return n
}

// sessionDomain is the domain whose number is 0: it belongs to no domain of the broker, and its messages are named without it.
func sessionDomain(spec *model.Spec) string {
	for _, d := range spec.Domains {
		if d.Number == 0 {
			return d.Name
		}
	}
	return ""
}

// exported is a name in Go case: owner_id becomes OwnerID.
func (n namer) exported(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '_' || r == '.' || r == '-' }) {
			if n.acronyms[word] {
				b.WriteString(strings.ToUpper(word))
				continue
			}
			b.WriteString(upperFirst(word))
		}
	}
	return b.String()
}

// local is a name in Go case that begins in lower case: owner_id becomes ownerID. Reserved words take a trailing underscore.
func (n namer) local(names ...string) string {
	words := strings.Split(strings.Join(names, "_"), "_")
	name := words[0] + n.exported(words[1:]...)
	if goWords[name] {
		name += "_"
	}
	return name
}

// in is the name of a part of a domain. The session domain gives no prefix, and a part whose name begins with its domain needs none.
func (n namer) in(d *model.Domain, names ...string) string {
	if d.Name == n.session || names[0] == d.Name || strings.HasPrefix(names[0], d.Name+"_") {
		return n.exported(names...)
	}
	return n.exported(d.Name) + n.exported(names...)
}

// goWords is what a local name must not be: keywords, and names that generated functions use themselves.
var goWords = func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(`break default func interface select case defer go map struct chan else goto package switch const
		fallthrough if range type continue for import return var len cap append copy make new nil true false error string bool byte any
		uint8 uint16 uint32 uint64 int int64 uint min max dst limits codec bounds wire`) {
		words[word] = true
	}
	return words
}()
