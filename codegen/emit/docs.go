package emit

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"

	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/sdk-templates/docs"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pattern"
)

func init() { register("docs", docFiles) }

// docFiles makes the reference documents.
func docFiles(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	templates, err := template.New("").Funcs(template.FuncMap{"md": markdown, "code": codeSpan}).ParseFS(docs.Templates, "*.md.tmpl")
	if err != nil {
		return nil, err
	}
	g := docGen{p}
	head := docHead{spec.Title, spec.Version, fmt.Sprintf("%016x", spec.Fingerprint)}
	selectors, err := g.selectors(head)
	if err != nil {
		return nil, err
	}
	data := map[string]any{"messages": g.messages(head), "limits": g.limits(head), "errors": g.errors(head), "selectors": selectors}
	var files []File
	for name, value := range data {
		var out bytes.Buffer
		source := name + ".md.tmpl"
		if err := templates.ExecuteTemplate(&out, source, value); err != nil {
			return nil, err
		}
		files = append(files, File{Path: "docs/" + name + ".md", Origin: FromTemplate, Source: templatesDir + "/docs/" + source, Content: tidy(out.Bytes())})
	}
	return sorted(files)
}

// docHead is what every document begins with.
type docHead struct{ Title, Version, Fingerprint string }

// docGen makes the data of the templates.
type docGen struct{ *protocol }

// tidy ends the file with one line break and leaves no more than one empty line anywhere.
func tidy(text []byte) []byte {
	for bytes.Contains(text, []byte("\n\n\n")) {
		text = bytes.ReplaceAll(text, []byte("\n\n\n"), []byte("\n\n"))
	}
	return append(bytes.TrimSpace(text), '\n')
}

// markdown is text that means itself in Markdown, also in a cell of a table.
func markdown(text string) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	var b strings.Builder
	for i, r := range runes {
		switch {
		case strings.ContainsRune("\\`*[]<>|&~$@#!{}", r), r == '_' && !insideWord(runes, i), r == ':' && autolink(runes[:i]), r == '.' && endsWith(runes[:i], "www"):
			b.WriteRune('\\')
		case i == 0 && strings.ContainsRune("-+=", r), r == '.' && digitsBefore(runes[:i]), r == ')' && digitsBefore(runes[:i]):
			b.WriteRune('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// insideWord tells whether letters or digits stand on both sides; an underscore is literal there.
func insideWord(runes []rune, i int) bool {
	return i > 0 && i+1 < len(runes) && word(runes[i-1]) && word(runes[i+1])
}

func word(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// autolink tells whether a colon makes a link of what stands in front of it.
func autolink(before []rune) bool {
	return endsWith(before, "http") || endsWith(before, "https") || endsWith(before, "ftp") || endsWith(before, "mailto") || endsWith(before, "xmpp")
}

func endsWith(runes []rune, suffix string) bool {
	return strings.HasSuffix(strings.ToLower(string(runes)), suffix)
}

// digitsBefore tells whether the text begins with digits only, which a dot or bracket would make a numbered list.
func digitsBefore(runes []rune) bool {
	return len(runes) > 0 && !slices.ContainsFunc(runes, func(r rune) bool { return !unicode.IsDigit(r) })
}

// codeSpan is text as code. A table cell ends at a bar even there, so bars are escaped; the fence is longer than any run of backticks inside.
func codeSpan(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return ""
	}
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + strings.ReplaceAll(text, "|", `\|`) + fence
}

// grouped is a number with its digits in groups of three.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// messagesDoc is the data of messages.md.
type messagesDoc struct {
	docHead
	Domains []domainDoc
	Rows    []rowDoc
}

type rowDoc struct {
	Number                                int
	Name, Anchor, Class, Direction, Needs string
}

type domainDoc struct {
	Name, Title, Doc string
	Enums            []enumDoc
	Messages         []messageDoc
}

type enumDoc struct {
	Name, Doc, Type string
	Closed          bool
	Values          []*model.EnumValue
}

type messageDoc struct {
	Number            int
	Name, Anchor, Doc string
	Facts             []string
	Values            []valueDoc
}

type valueDoc struct {
	Heading, Sizes string
	Fields         []fieldDoc
	Example        []exampleDoc
}

type fieldDoc struct{ Offset, Size, Path, Type, Bound, Presence, Doc string }

type exampleDoc struct{ Hex, Text string }

func (g docGen) messages(head docHead) messagesDoc {
	out := messagesDoc{docHead: head}
	for _, d := range g.domains {
		out.Domains = append(out.Domains, g.domain(d))
		for _, op := range d.Operations {
			out.Rows = append(out.Rows, rowDoc{op.Number, d.Name + "." + op.Name, anchor(d.Name, op.Name), "request", "client → broker, and its reply", codeSpan(op.Needs)})
		}
		for _, m := range d.Messages {
			out.Rows = append(out.Rows, rowDoc{m.Number, d.Name + "." + m.Name, anchor(d.Name, m.Name), m.Class, directionWords[m.Direction], codeSpan(m.Needs)})
		}
	}
	slices.SortStableFunc(out.Rows, func(a, b rowDoc) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

var directionWords = map[string]string{"to_broker": "client → broker", "to_client": "broker → client", "both": "both"}

// anchor is the name by which a part of a document is linked.
func anchor(parts ...string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.Join(parts, "-"))
}

func (g docGen) domain(d *domain) domainDoc {
	out := domainDoc{Name: d.Name, Title: upperFirst(d.Name), Doc: sentence(d.Doc)}
	for _, e := range d.Enums {
		out.Enums = append(out.Enums, enumDoc{e.Name, sentence(e.Doc), e.Type, e.Closed, e.Values})
	}
	for i, r := range d.records {
		switch r.part {
		case requestPart:
			m := g.message(r, r.op.Number)
			m.Values = append(m.Values, g.value(r, "Request"))
			if !r.op.NoReply {
				m.Values = append(m.Values, g.value(d.records[i+1], "Success"))
			}
			out.Messages = append(out.Messages, m)
		case messagePart:
			m := g.message(r, r.message.Number)
			m.Values = append(m.Values, g.value(r, ""))
			out.Messages = append(out.Messages, m)
		case structPart:
			m := g.message(r, 0)
			m.Values = append(m.Values, g.value(r, ""))
			out.Messages = append(out.Messages, m)
		}
	}
	return out
}

func (g docGen) message(r *record, number int) messageDoc {
	return messageDoc{Number: number, Name: r.path, Anchor: anchor(r.path), Doc: sentence(r.doc), Facts: g.facts(r)}
}

// facts are the lines about who sends a message and what answers it.
func (g docGen) facts(r *record) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m := r.message; m != nil {
		add("%s, %s", m.Class, directionWords[m.Direction])
		if m.AnsweredBy != "" {
			add("answered by %s", codeSpan(m.AnsweredBy))
		}
		if m.Needs != "" {
			add("needs the capability %s", codeSpan(m.Needs))
		}
		if m.LaterIgnored {
			add("bytes after the last field are ignored")
		}
		if m.Overflow != "" {
			add("when it finds no room: %s", markdown(strings.ReplaceAll(m.Overflow, "_", " ")))
		}
		add("malformed: %s", g.fault(m.Malformed, r.domain.Faults.Malformed))
	}
	if op := r.op; op != nil {
		out = append(out, g.operationFacts(op)...)
	}
	if len(r.clauses) > 0 {
		add("rules %s", strings.Join(r.clauses, ", "))
	}
	return out
}

func (g docGen) operationFacts(op *model.Operation) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if a := op.Access; a != nil && a.On != "" {
		add("needs %s access to %s (%s)", a.Level, codeSpan(a.On), markdown(a.As))
	} else if a != nil {
		add("needs %s access", a.Level)
	}
	if op.Needs != "" {
		add("needs the capability %s", codeSpan(op.Needs))
	}
	if op.Deferred != nil {
		add("a second reply follows when %s is %s", codeSpan(op.Deferred.Field), codeSpans(op.Deferred.After, " or "))
	}
	if op.NoReply {
		add("a success is not answered")
	}
	if op.ReadOnly {
		add("reads only")
	}
	if len(op.Idempotent) > 0 {
		add("repeating it changes nothing; the same is what agrees in %s", codeSpans(op.Idempotent, ", "))
	}
	add("malformed: %s; bad route or selector: %s; denied: %s; not accepted: %s", g.fault(op.Faults.Malformed, ""), g.fault(op.Faults.Route, ""),
		g.fault(op.Faults.Denied, ""), g.fault(op.Faults.NotAccepted, ""))
	if len(op.Errors) > 0 {
		add("refused with %s", g.codes(op.Errors))
	}
	add("refusals have the %s form", codeSpan(op.Envelope))
	return out
}

func (g docGen) fault(own, domain string) string {
	switch fault := cmp.Or(own, domain); {
	case fault == "":
		return "—"
	case fault == "drop":
		return "dropped and counted"
	case strings.HasPrefix(fault, "close:"):
		return "the session is closed, " + codeSpan(strings.TrimPrefix(fault, "close:"))
	default:
		return g.codes([]string{fault})
	}
}

func (g docGen) codes(names []string) string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		if e := g.Error(name); e != nil {
			out = append(out, fmt.Sprintf("%d %s", e.Code, codeSpan(name)))
		}
	}
	return strings.Join(out, ", ")
}

func codeSpans(words []string, between string) string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		out = append(out, codeSpan(w))
	}
	return strings.Join(out, between)
}

func (g docGen) value(r *record, heading string) valueDoc {
	out := valueDoc{Heading: heading, Sizes: fmt.Sprintf("%s to %s bytes:", grouped(int64(r.smallest)), grouped(int64(r.largest)))}
	if r.smallest == r.largest {
		out.Sizes = grouped(int64(r.smallest)) + " bytes:"
	}
	t := fieldTable{g: g, fixed: true}
	if r.part == replyPart {
		t.row("status", "u8", "1", "0", "", "Kind of the envelope.", 1, 1)
	}
	t.record(r, "")
	out.Fields = t.rows
	for _, piece := range g.examplePieces(r) {
		if len(piece.raw) > 0 {
			out.Example = append(out.Example, exampleDoc{hexWords(piece.raw), piece.path + ": " + piece.text})
		}
	}
	return out
}

// hexWords is bytes in hex, at most sixteen of them in one word.
func hexWords(raw []byte) string {
	var words []string
	for chunk := range slices.Chunk(raw, 16) {
		words = append(words, hex.EncodeToString(chunk))
	}
	return strings.Join(words, " ")
}

// fieldTable is the layout table of one value.
type fieldTable struct {
	g      docGen
	rows   []fieldDoc
	offset int
	fixed  bool // the offset is the same in every value
}

func (t *fieldTable) row(path, typ, size, bound, presence, text string, least, most int) {
	offset := "…"
	if t.fixed {
		offset = strconv.Itoa(t.offset)
	}
	t.rows = append(t.rows, fieldDoc{offset, size, path, typ, bound, presence, markdown(sentence(text))})
	t.fixed = t.fixed && least == most && presence == ""
	t.offset += least
}

func (t *fieldTable) record(r *record, prefix string) {
	for _, f := range r.fields {
		t.field(f, prefix+f.Name)
	}
}

func (t *fieldTable) field(f *field, path string) {
	presence := t.g.presenceWords(f)
	if f.Presence.Kind == model.Flagged || f.Presence.Kind == model.TailFlagged {
		flag := ""
		if f.Presence.Kind == model.TailFlagged {
			flag = "iff bytes remain"
		}
		t.row(path+" present", "bool8", "1", "", flag, "Whether "+f.Name+" follows", 1, 1)
	}
	switch f.kind {
	case structure, choice:
		t.part(f, path, presence)
	case list:
		t.list(f, path, presence)
	default:
		least, most := f.valueSizes()
		t.row(path, typeWords(f), t.g.sizeWords(f, least, most), t.g.boundWords(f), presence, f.Doc, least, most)
	}
}

func (t *fieldTable) part(f *field, path, presence string) {
	if f.Length != "" {
		width := widths[f.Length] / 8
		t.row(path+" length", f.Length, strconv.Itoa(width), t.g.boundWords(f), presence, "Bytes of "+f.Name, width, width)
	}
	if f.kind == choice {
		t.choice(f, path, presence)
		return
	}
	wasFixed := t.fixed
	t.fixed = t.fixed && presence == ""
	for _, inner := range f.record.fields {
		t.fieldWith(inner, path+"."+inner.Name, presence)
	}
	t.fixed = t.fixed && wasFixed && presence == "" && f.Length == ""
}

// fieldWith adds a field of a part, which is present when the part is.
func (t *fieldTable) fieldWith(f *field, path, presence string) {
	start := len(t.rows)
	t.field(f, path)
	for i := start; i < len(t.rows) && presence != ""; i++ {
		t.rows[i].Presence = strings.Trim(presence+", "+t.rows[i].Presence, ", ")
	}
}

func (t *fieldTable) choice(f *field, path, presence string) {
	width := widths[f.record.union.Tag] / 8
	t.row(path+" kind", f.record.union.Tag, strconv.Itoa(width), "", presence, f.record.doc, width, width)
	for i, form := range f.record.forms {
		t.fixed = false
		for _, inner := range form.fields {
			t.fieldWith(inner, path+"."+inner.Name, fmt.Sprintf("kind %d", f.record.union.Variants[i].Value))
		}
	}
	t.fixed = false
}

func (t *fieldTable) list(f *field, path, presence string) {
	switch f.Form {
	case "flagged":
		t.row(path+" more", "bool8", "1", t.g.boundWords(f), "in front of each item, 0 at the end", f.Doc, 1, 1)
	case "until_end":
		t.fixed = false
	default:
		t.row(path+" count", f.Count, strconv.Itoa(f.frame()), t.g.boundWords(f), presence, f.Doc, f.frame(), f.frame())
	}
	t.fixed = false
	t.fieldWith(f.elem, path+"[]", "each item")
	t.fixed = false
}

func typeWords(f *field) string {
	switch f.kind {
	case boolean:
		return "bool8"
	case text:
		return map[bool]string{true: "UTF-8", false: "str"}[f.Presence.Kind == model.Rest]
	case enumeration:
		return f.enum.Type + " " + codeSpan(f.enum.Name)
	}
	return f.Type
}

func (g docGen) sizeWords(f *field, least, most int) string {
	switch {
	case least == most:
		return strconv.Itoa(least)
	case f.Presence.Kind == model.Rest:
		return "n"
	}
	return strconv.Itoa(least) + " + n"
}

// boundWords says what the field may hold.
func (g docGen) boundWords(f *field) string {
	var out []string
	switch {
	case f.Const != nil:
		out = append(out, "= "+fmt.Sprint(g.limit(f.Const).value))
	case f.Above == "clamp" && f.highest != nil:
		out = append(out, "≤ "+limitWords(f.highest)+", more counts as that")
	case f.least != nil && f.highest != nil:
		out = append(out, limitWords(f.least)+" to "+limitWords(f.highest))
	case f.highest != nil:
		out = append(out, "≤ "+limitWords(f.highest))
	case f.least != nil:
		out = append(out, "≥ "+limitWords(f.least))
	}
	if f.Nonzero {
		out = append(out, "≠ 0")
	}
	if f.initial != nil && f.initial.bound != nil {
		out = append(out, "0 means "+limitWords(f.initial))
	}
	if f.most != nil {
		unit := map[bool]string{true: "items", false: "bytes"}[f.kind == list]
		out = append(out, fmt.Sprintf("≤ %s %s", limitWords(&limit{uint64(f.most.Default), f.most}), unit))
	}
	if f.bytes != nil {
		out = append(out, fmt.Sprintf("≤ %s bytes", limitWords(&limit{uint64(f.bytes.Default), f.bytes})))
	}
	if f.Above == "cut" {
		out = append(out, "cut by the sender")
	}
	return strings.Join(out, ", ")
}

func limitWords(l *limit) string {
	if l.bound == nil {
		return grouped(int64(l.value))
	}
	words := codeSpan(l.bound.Name) + " " + grouped(l.bound.Default)
	if len(l.bound.Minus) > 0 {
		words += " less " + codeSpans(l.bound.Minus, " and ")
	}
	return words
}

// presenceWords says when the field is on the wire; nothing when it always is.
func (g docGen) presenceWords(f *field) string {
	switch f.Presence.Kind {
	case model.Flagged, model.TailFlagged:
		return "iff the flag is 1"
	case model.Tail:
		if f.initial != nil {
			return "iff bytes remain, else " + fmt.Sprint(f.initial.value)
		}
		return "iff bytes remain"
	case model.Rest:
		return "all remaining bytes"
	case model.PresentWhen:
		if f.bit != nil {
			return fmt.Sprintf("iff %s has bit %d", codeSpan(f.when.Name), f.bit.Bit)
		}
		return "iff " + codeSpan(f.when.Name) + " is 1"
	}
	return ""
}

// limitsDoc is the data of limits.md.
type limitsDoc struct {
	docHead
	Bounds []boundDoc
}

type boundDoc struct {
	Name, Default, Unit, Scope, ChosenBy, Beyond, Reaction, Because string
	Changeable                                                      bool
}

func (g docGen) limits(head docHead) limitsDoc {
	out := limitsDoc{docHead: head}
	for _, b := range g.Bounds {
		def := grouped(b.Default)
		for _, name := range b.Minus {
			def += " − bytes of " + codeSpan(name)
		}
		out.Bounds = append(out.Bounds, boundDoc{b.Name, def, b.Unit, b.Scope, b.ChosenBy, b.Beyond, strings.ReplaceAll(b.Reaction, "_", " "), b.Because, b.OperatorMayChange})
	}
	return out
}

// errorsDoc is the data of errors.md.
type errorsDoc struct {
	docHead
	Codes     []codeDoc
	Local     []localDoc
	Classes   []*model.ErrorClass
	Envelopes []envelopeDoc
	Texts     []*model.FixedText
	Reasons   []*model.ReasonTable
	Closes    []*model.CloseReason
}

type codeDoc struct {
	*model.ErrorCode
	Text string
}

type localDoc struct {
	*model.LocalError
	Reasons string
}

type envelopeDoc struct {
	Name, Doc, Fields string
	Status            uint8
}

func (g docGen) errors(head docHead) errorsDoc {
	out := errorsDoc{docHead: head, Classes: g.Classes, Texts: g.Wire.FixedTexts, Closes: g.Wire.CloseReasons}
	for _, e := range g.Errors {
		out.Codes = append(out.Codes, codeDoc{e, dotted(e.Name)})
	}
	slices.SortStableFunc(out.Codes, func(a, b codeDoc) int { return cmp.Compare(a.Code, b.Code) })
	for _, l := range g.Local {
		out.Local = append(out.Local, localDoc{l, strings.Join(l.Reasons, ", ")})
	}
	for _, e := range g.Wire.Envelopes {
		var fields []string
		for _, f := range e.Fields {
			fields = append(fields, codeSpan(f.Name)+" "+f.Type)
		}
		out.Envelopes = append(out.Envelopes, envelopeDoc{e.Name, e.Doc, strings.Join(fields, ", "), e.Status})
	}
	for _, d := range g.Domains {
		out.Reasons = append(out.Reasons, d.Reasons...)
	}
	return out
}

// selectorsDoc is the data of selectors.md.
type selectorsDoc struct {
	docHead
	Separator, SegmentSeparator, One, Many   string
	Bytes, BytesName, Segments, SegmentsName string
	Schemes                                  []schemeRow
	Reasons                                  []reasonRow
	Masks                                    []maskTable
}

type schemeRow struct{ Name, Depth, Segments, Notes, Clauses string }

type reasonRow struct {
	Step                     int
	Name, Doc, Fixed, Clause string
}

type maskTable struct {
	Depth  int
	Shapes []maskRow
}

type maskRow struct{ Shape, Masks string }

func (g docGen) selectors(head docHead) (selectorsDoc, error) {
	r := g.Routes
	out := selectorsDoc{docHead: head, Separator: r.Separator, SegmentSeparator: r.SegmentSeparator, One: r.One, Many: r.Many, BytesName: r.Bytes, SegmentsName: r.Segments}
	out.Bytes, out.Segments = grouped(g.Bound(r.Bytes).Default), grouped(g.Bound(r.Segments).Default)
	for _, s := range r.Schemes {
		out.Schemes = append(out.Schemes, g.schemeRow(s))
	}
	for i, reason := range r.Reasons {
		fixed := ""
		if t := g.FixedText(reason.FixedText); t != nil {
			fixed = t.Text
		}
		out.Reasons = append(out.Reasons, reasonRow{i + 1, reason.Name, reason.Doc, fixed, reason.Clause})
	}
	for _, depth := range g.depths() {
		table, err := g.maskTable(depth)
		if err != nil {
			return out, err
		}
		out.Masks = append(out.Masks, table)
	}
	return out, nil
}

func (g docGen) schemeRow(s *model.Scheme) schemeRow {
	row := schemeRow{Name: s.Name, Depth: strconv.Itoa(s.Depth), Segments: strings.Join(s.Segments, ", "), Clauses: strings.Join(s.Clauses, ", ")}
	if s.Depth == 0 {
		row.Depth = "1 to " + codeSpan(g.Routes.Segments)
	}
	var notes []string
	if s.Schemeless {
		notes = append(notes, "a text without "+codeSpan(g.Routes.Separator)+" gets the scheme in front")
	}
	if len(s.Reserved) > 0 {
		notes = append(notes, fmt.Sprintf("from segment %d on %s are reserved", s.ReservedFrom+1, codeSpans(s.Reserved, " and ")))
	}
	if len(s.Shapes) > 0 {
		notes = append(notes, "selectors only of the shapes "+codeSpans(s.Shapes, ", "))
	}
	row.Notes = strings.Join(notes, "; ")
	return row
}

// depths are the fixed depths of the schemes, smallest first.
func (g docGen) depths() []int {
	var out []int
	for _, s := range g.Routes.Schemes {
		if s.Depth > 0 && !slices.Contains(out, s.Depth) {
			out = append(out, s.Depth)
		}
	}
	slices.Sort(out)
	return out
}

// maskTable lists every shape of literals and "**" with room for the "**", and what the runtime makes of it.
func (g docGen) maskTable(depth int) (maskTable, error) {
	out := maskTable{Depth: depth}
	grammar := pattern.Grammar{Scheme: "x", Depth: depth, MaxBytes: int(g.Bound(g.Routes.Bytes).Default), MaxSegments: int(g.Bound(g.Routes.Segments).Default)}
	for literals := range depth {
		for gaps := 1; gaps < 1<<(literals+1); gaps++ {
			path := shape(literals, gaps, g.Routes.Many, g.Routes.SegmentSeparator)
			selector, err := grammar.ParseSelector("x" + g.Routes.Separator + path)
			if err != nil {
				return out, fmt.Errorf("shape %s: %w", path, err)
			}
			var masks []string
			for _, m := range selector.Masks() {
				masks = append(masks, codeSpan(m.String()))
			}
			out.Shapes = append(out.Shapes, maskRow{path, strings.Join(masks, " · ")})
		}
	}
	return out, nil
}

// shape is so many literals with "**" in the gaps whose bits are set.
func shape(literals, gaps int, many, separator string) string {
	var segments []string
	for i := range literals + 1 {
		if gaps&(1<<i) != 0 {
			segments = append(segments, many)
		}
		if i < literals {
			segments = append(segments, string(rune('a'+i)))
		}
	}
	return strings.Join(segments, separator)
}
