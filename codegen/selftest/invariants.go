package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/codegen/overlay"
	"github.com/fitzwire/fitz/codegen/rules"
)

// Result is what came of breaking the subject of one check of an enforced invariant in a copy.
type Result struct {
	Invariant int
	Name      string
	Check     string        // rule BOUND_MISSING, test broker/lease TestX
	Broken    string        // what was done to the copy
	Found     []string      // findings that tell of it, empty when nothing failed
	All       findings.List // every finding of the copy
	Err       error         // the copy could not be broken or checked
}

// Failed tells whether the check did not notice.
func (r *Result) Failed() bool { return r.Err != nil || len(r.Found) == 0 }

// Invariants breaks, for each check that an enforced invariant names, the subject of the check in a copy of the specification and its source
// tree, and expects a finding. A check of a rule is broken by the mistake that the rule is for, a check of a test by renaming the test.
func Invariants(fsys fs.FS, index string) ([]*Result, error) {
	spec, list, err := load.FS(fsys, index)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		return nil, fmt.Errorf("the specification has findings:\n%s", list)
	}
	var out []*Result
	for _, x := range spec.Invariants {
		if x.State != "enforced" {
			continue
		}
		for _, p := range x.Checks {
			r := &Result{Invariant: x.Number, Name: x.Name, Check: p.Kind + " " + p.Target}
			r.run(fsys, index, spec, p)
			out = append(out, r)
		}
	}
	return out, nil
}

// run breaks the subject of one check and looks for the finding.
func (r *Result) run(fsys fs.FS, index string, spec *model.Spec, p *model.Proof) {
	o := overlay.New(fsys)
	rule := "PROOF_UNKNOWN"
	tree := path.Join(spec.Dir, spec.Tree)
	switch p.Kind {
	case "rule":
		rule = p.Target
		r.Broken, r.Err = breakRule(o, spec, p.Target)
	case "test":
		folder, name, _ := strings.Cut(p.Target, " ")
		expr := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
		r.Broken, r.Err = replaceIn(o, path.Join(tree, folder), "_test.go", expr, "func renamed"+name+"(")
	case "scenario":
		file := path.Join(tree, "conformance/scenarios", p.Target+".yaml")
		o.Remove(file)
		r.Broken = "removed " + file
	case "generated":
		folder, expr, ok := rules.GeneratedCheck(p.Target)
		if !ok {
			r.Err = fmt.Errorf("the generator writes no check %s", p.Target)
			return
		}
		r.Broken, r.Err = removeFrom(o, path.Join(tree, folder), expr)
	default:
		r.Err = fmt.Errorf("no way to break a check of kind %s", p.Kind)
	}
	if r.Err != nil {
		return
	}
	if r.All, r.Err = check(o, index); r.Err != nil {
		return
	}
	for _, f := range r.All {
		if f.Rule == rule {
			r.Found = append(r.Found, f.String())
		}
	}
}

// breaker is a mistake that a rule is for: the first text that matches in one of the files becomes another one.
type breaker struct {
	files   string // of which files of the specification: domains, or the kind
	match   string
	replace string
}

// breakers is one mistake for each rule that an invariant may name.
var breakers = map[string]breaker{
	"ENDPOINT_OPAQUE":   {"domains", `type: route, bound:`, `type: endpoint, bound:`},
	"ROUTE_GRAMMAR":     {"domains", `(?m)^routes: .*\n`, ``},
	"MESSAGE_NUMBER":    {"domains", `(?s)(message: )(\d+)(.*?message: )\d+`, `${1}${2}${3}${2}`},
	"MESSAGE_CLASS":     {"domains", `role: capability`, `role: acknowledgement`},
	"ANSWERED_BY":       {"domains", `answered_by: \w+`, `answered_by: nobody`},
	"WORD_PROMISE":      {"domains", `(?m)^    doc: .*$`, `    doc: Delivered exactly once.`},
	"WORD_TOPOLOGY":     {"domains", `\{name: [a-z_]+, type: u64`, `{name: leader, type: u64`},
	"CAPABILITY_NEEDED": {"wire", `announced: true,`, `announced: false, waits_for: nothing,`},
	"TAIL_DEFAULT":      {"domains", `presence: tail, default: \w+`, `presence: tail`},
	"BOUND_MISSING":     {"domains", `(type: string), bound: \w+`, `${1}`},
	"BOUND_UNKNOWN":     {"domains", `(type: string, bound: \w+)`, `${1}_gone`},
	"BOUND_REACTION":    {"bounds", `(chosen_by: peer,(?: operator_may_change: true,)?) reaction: \w+`, `${1} reaction: none`},
	"CAPABILITY_LEAK":   {"domains", `role: registration`, `role: capability`},
	"FIELD_ORDER":       {"domains", `(?m)^(.*presence: tail.*)$`, "${1}\n      - {name: behind_the_tail, type: u8, doc: Not possible.}"},
	"SIZE_SENT":         {"bounds", `(?s)(list_page_bytes_max:\s+\{default: )\d+`, `${1}9999999`},
}

// breakRule makes the mistake of one rule.
func breakRule(o *overlay.FS, spec *model.Spec, rule string) (string, error) {
	b, ok := breakers[rule]
	if !ok {
		return "", fmt.Errorf("no mistake is known that breaks %s", rule)
	}
	for _, file := range filesOf(spec, b.files) {
		done, err := replace(o, file, regexp.MustCompile(b.match), b.replace)
		if done != "" || err != nil {
			return done, err
		}
	}
	return "", fmt.Errorf("nothing to break %s with: no file has %s", rule, b.match)
}

// filesOf is the files of a kind, as the model remembers where its parts came from. The domains come last first, because the first one opens
// sessions and has the fewest kinds of fields.
func filesOf(spec *model.Spec, kind string) []string {
	switch kind {
	case "wire":
		return []string{spec.Wire.Pos.File}
	case "bounds":
		return []string{spec.Bounds[0].Pos.File}
	}
	var out []string
	for _, d := range spec.Domains {
		out = append([]string{d.Pos.File}, out...)
	}
	return out
}

// replaceIn replaces the first match in the files of a folder.
func replaceIn(o *overlay.FS, dir, suffix string, expr *regexp.Regexp, with string) (string, error) {
	entries, err := fs.ReadDir(o, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		done, err := replace(o, path.Join(dir, e.Name()), expr, with)
		if done != "" || err != nil {
			return done, err
		}
	}
	return "", fmt.Errorf("no file of %s has %s", dir, expr)
}

// removeFrom removes the files of a folder that have a match.
func removeFrom(o *overlay.FS, dir string, expr *regexp.Regexp) (string, error) {
	var removed []string
	entries, err := fs.ReadDir(o, dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		file := path.Join(dir, e.Name())
		if e.IsDir() {
			continue
		}
		text, err := fs.ReadFile(o, file)
		if err != nil {
			return "", err
		}
		if expr.Match(text) {
			o.Remove(file)
			removed = append(removed, file)
		}
	}
	if len(removed) == 0 {
		return "", fmt.Errorf("no file of %s has %s", dir, expr)
	}
	return "removed " + strings.Join(removed, ", "), nil
}

// replace replaces the first match in one file and says what it did, "" when there is no match.
func replace(o *overlay.FS, file string, expr *regexp.Regexp, with string) (string, error) {
	text, err := fs.ReadFile(o, file)
	if err != nil {
		return "", err
	}
	at := expr.FindSubmatchIndex(text)
	if at == nil {
		return "", nil
	}
	changed := append([]byte{}, text[:at[0]]...)
	changed = expr.Expand(changed, []byte(with), text, at)
	changed = append(changed, text[at[1]:]...)
	o.Put(file, changed)
	return fmt.Sprintf("%s: %s became %s", file, firstLine(text[at[0]:at[1]]), firstLine(changed[at[0]:len(changed)-len(text)+at[1]])), nil
}

func firstLine(text []byte) string {
	line, _, more := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if more {
		line += " …"
	}
	if line == "" {
		return "nothing"
	}
	return line
}
