package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/generated/go/settings"
)

// largestFile bounds what is read of a configuration file.
const largestFile = 1 << 20

// file is a configuration file as it was read: values as text with the place of each.
type file struct {
	values    map[string]given
	limits    []fileLimit
	listeners []fileListener
	wrong     map[string]bool // keys whose value was reported, so that nothing is judged by their defaults
}

type fileLimit struct {
	name  string
	value given
}

// fileListener is one entry of the list `listeners`.
type fileListener struct {
	name                            string
	from                            string
	Transport, Address, Auth, Hello given
	tls                             fileTLS
}

// fileTLS is the key tls of a listener.
type fileTLS struct {
	from  string // place of the key; empty when there is none
	off   bool
	parts tlsParts
}

// reader reads one file and collects its mistakes.
type reader struct {
	path     string
	problems *Problems
	out      *file
}

// Types of settings that are read in a way of their own.
const (
	typeList      = "list"
	typeTextMap   = "text_map"
	typeNumberMap = "number_map"
	typeSecret    = "secret"
)

// tagText is what a text is to the YAML reader.
const tagText = "!!str"

// keyListeners is the list of further listeners.
const keyListeners = "listeners"

// readFile reads the file at path; an empty path is an empty file.
func readFile(path string, problems *Problems) *file {
	r := &reader{path: path, problems: problems, out: &file{values: map[string]given{}, wrong: map[string]bool{}}}
	if path == "" {
		return r.out
	}
	text, err := readAtMost(path, largestFile)
	if err != nil {
		*problems = append(*problems, Problem{path, "cannot be read: " + reason(err)})
		return r.out
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&document); {
	case err == io.EOF:
		return r.out // nothing but comments
	case err != nil:
		*problems = append(*problems, yamlProblem(path, err))
		return r.out
	}
	r.root(document.Content[0])
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.problem(&second, "a second document; the file must hold one")
	case err != io.EOF:
		*problems = append(*problems, yamlProblem(path, err))
	}
	return r.out
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("larger than %d bytes", most)
	}
	return text, err
}

// reason is an error without the path that is printed beside it.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// yamlProblem turns "yaml: line 3: text" into a place and a text.
func yamlProblem(path string, err error) Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(text, "unknown anchor") {
		text = "anchors and aliases are not supported: quote a text that begins with *" // it could be a secret
	}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if line, what, ok := strings.Cut(rest, ": "); ok {
			return Problem{path + ":" + line, what}
		}
	}
	return Problem{path, text}
}

func (r *reader) place(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.path, n.Line) }

func (r *reader) problem(n *yaml.Node, format string, args ...any) {
	*r.problems = append(*r.problems, Problem{r.place(n), fmt.Sprintf(format, args...)})
}

// mapping calls f for every key of a mapping. Duplicates, anchors and keys that are no text are mistakes.
func (r *reader) mapping(n *yaml.Node, what string, f func(key string, at, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.problem(n, "%s must be a mapping", what)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			r.problem(key, "a key must be text")
			continue
		case seen[key.Value] != 0:
			r.problem(key, "%s stands here again, first in line %d", key.Value, seen[key.Value])
			continue
		case value.Kind == yaml.AliasNode || value.Anchor != "":
			r.problem(value, "%s: anchors and aliases are not supported", key.Value)
			continue
		}
		seen[key.Value] = key.Line
		f(key.Value, key, value)
	}
}

func (r *reader) root(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	r.mapping(n, "the file", func(key string, at, value *yaml.Node) {
		before := len(*r.problems)
		defer func() { r.out.wrong[key] = len(*r.problems) > before }()
		if key == keyListeners {
			r.listenerList(value)
			return
		}
		if i := slices.IndexFunc(settings.Listeners, func(l settings.Listener) bool { return l.Name == key }); i >= 0 {
			r.scalar(key, value, "!!str", "text such as "+settings.Listeners[i].Address)
			return
		}
		i := slices.IndexFunc(settings.All, func(s settings.Setting) bool { return s.Name == key })
		if i < 0 || key == settings.SettingConfig.Name {
			r.problem(at, "unknown key %s", key)
			return
		}
		r.setting(settings.All[i], value)
	})
}

func (r *reader) setting(s settings.Setting, n *yaml.Node) {
	switch s.Type {
	case "limits":
		r.mapping(n, s.Name, func(name string, _, value *yaml.Node) {
			if v, ok := r.text(name, value, "!!int", "a whole number"); ok {
				r.out.limits = append(r.out.limits, fileLimit{name, v})
			}
		})
	case typeTextMap:
		r.pairs(s.Name, n, tagText, "text")
	case typeNumberMap:
		r.pairs(s.Name, n, "!!int", "a whole number")
	case typeList:
		r.list(s.Name, n)
	case "bool":
		r.scalar(s.Name, n, "!!bool", "true or false")
	case "number":
		r.scalar(s.Name, n, "!!int", "a whole number")
	case "enum":
		if v, ok := r.word(s, s.Name, n); ok {
			r.out.values[s.Name] = v
		}
	default:
		r.scalar(s.Name, n, "!!str", "text")
	}
}

func (r *reader) scalar(key string, n *yaml.Node, tag, form string) {
	if v, ok := r.text(key, n, tag, form); ok {
		r.out.values[key] = v
	}
}

// pairs reads a mapping of names to scalars of one type.
func (r *reader) pairs(key string, n *yaml.Node, tag, form string) {
	v := given{from: r.place(n), pairs: []pair{}}
	r.mapping(n, key, func(name string, _, value *yaml.Node) {
		if text, ok := r.text("the entry of "+key, value, tag, form); ok {
			v.pairs = append(v.pairs, pair{name, text.text, text.from})
		}
	})
	if n.Kind == yaml.MappingNode {
		r.out.values[key] = v
	}
}

// word reads a value of an enumeration, which need not be quoted also when it looks like a number.
func (r *reader) word(s settings.Setting, key string, n *yaml.Node) (given, bool) {
	if n.Kind == yaml.ScalarNode && slices.Contains(s.Values, n.Value) {
		return given{text: n.Value, from: r.place(n)}, true
	}
	return r.text(key, n, tagText, "one of "+strings.Join(s.Values, ", "))
}

// text returns a scalar of that type.
func (r *reader) text(key string, n *yaml.Node, tag, form string) (given, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != tag || n.Value == "" {
		r.problem(n, "%s must be %s", key, form)
		return given{}, false
	}
	return given{text: n.Value, from: r.place(n)}, true
}

func (r *reader) list(key string, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.problem(n, "%s must be a list", key)
		return
	}
	v := given{from: r.place(n)}
	for _, item := range n.Content {
		if text, ok := r.text("an item of "+key, item, "!!str", "text"); ok {
			v.list = append(v.list, text.text)
		}
	}
	v.text = strings.Join(v.list, ",")
	r.out.values[key] = v
}

func (r *reader) listenerList(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.problem(n, "%s must be a list", keyListeners)
		return
	}
	if len(n.Content) == 0 {
		r.problem(n, "%s is empty; leave the key out for the default listeners alone", keyListeners)
	}
	for i, item := range n.Content {
		l := fileListener{name: fmt.Sprintf("%s[%d]", keyListeners, i), from: r.place(item)}
		r.mapping(item, l.name, func(key string, at, value *yaml.Node) { r.listenerKey(&l, key, at, value) })
		if item.Kind == yaml.MappingNode {
			r.out.listeners = append(r.out.listeners, l)
		}
	}
}

func (r *reader) listenerKey(l *fileListener, key string, at, value *yaml.Node) {
	targets := map[string]*given{"transport": &l.Transport, "address": &l.Address, "auth": &l.Auth, "hello": &l.Hello}
	switch target := targets[key]; {
	case key == "tls":
		l.tls.from = r.place(at)
		r.listenerTLS(&l.tls, value)
	case target == nil:
		r.problem(at, "unknown key %s", key)
	default:
		if v, ok := r.text(key, value, "!!str", "text"); ok {
			*target = v
		}
	}
}

// listenerTLS reads the key tls of a listener: off, or a mapping.
func (r *reader) listenerTLS(t *fileTLS, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Value == tlsOff {
		t.off = true
		return
	}
	r.mapping(n, "tls", func(key string, at, value *yaml.Node) {
		part := t.parts.part(key)
		if part == nil {
			r.problem(at, "unknown key %s", key)
			return
		}
		var v given
		var ok bool
		if s := tlsSettings[slices.Index(t.parts.all(), part)]; s.Type == "enum" {
			v, ok = r.word(s, key, value)
		} else {
			v, ok = r.text(key, value, tagText, "text")
		}
		if ok {
			*part = v
		}
	})
	if n.Kind != yaml.MappingNode {
		t.off = true // reported
	}
}
