package load

import (
	"cmp"
	"path"
	"slices"

	"github.com/fitzwire/fitz/codegen/model"
)

// build turns the files into the model.
func (l *loader) build() *model.Spec {
	index := node{l.index, l.index.root}
	spec := &model.Spec{
		Pos:       model.Pos{File: l.index.path, Line: 1, Col: 1},
		Protocol:  index.get("protocol").str(),
		Title:     index.get("title").str(),
		Version:   index.get("version").str(),
		Doc:       index.get("doc").str(),
		Dir:       path.Clean(l.dir),
		Reference: index.get("reference").str(),
		Tree:      cmp.Or(index.get("tree").str(), ".."),
	}
	l.errors(spec)
	spec.Wire = l.wire()
	spec.Bounds = l.bounds()
	spec.Routes = l.routes()
	spec.SDK = l.sdk()
	spec.Broker = l.broker()
	spec.Admin = l.admin()
	spec.Metrics = l.metrics()
	spec.Invariants = l.invariants()
	spec.Clauses = l.clauses()
	for _, src := range l.domains {
		if src.root != nil {
			spec.Domains = append(spec.Domains, domain(node{src, src.root}))
		}
	}
	spec.Fingerprint = l.fingerprint()
	spec.Index = path.Base(l.index.path)
	spec.Sources = l.sources()
	return spec
}

// sources is the text of every file that was read, by its path from the folder of the index.
func (l *loader) sources() map[string][]byte {
	texts := map[string][]byte{path.Base(l.index.path): l.index.text}
	files := node{l.index, l.index.root}.get("files")
	for _, kind := range kinds {
		if src := l.files[kind]; src != nil && src.text != nil {
			texts[path.Clean(files.get(kind).str())] = src.text
		}
	}
	for i, item := range files.get("domains").items() {
		if i < len(l.domains) && l.domains[i].text != nil {
			texts[path.Clean(item.str())] = l.domains[i].text
		}
	}
	return texts
}

// file is the root of the file of one kind.
func (l *loader) file(kind string) node {
	src := l.files[kind]
	return node{src, src.root}
}

// rows makes one value of each pair of a mapping.
func rows[T any](v node, make func(key, value node) *T) []*T {
	var out []*T
	for k, value := range v.pairs() {
		out = append(out, make(k, value))
	}
	return out
}

// list makes one value of each member of a sequence.
func list[T any](v node, make func(item node) *T) []*T {
	var out []*T
	for _, item := range v.items() {
		out = append(out, make(item))
	}
	return out
}

func (l *loader) errors(spec *model.Spec) {
	file := l.file("errors")
	spec.CodeRanges = rows(file.get("ranges"), func(k, v node) *model.CodeRange {
		return &model.CodeRange{Named: named(k.str(), k, v), From: uint32(v.get("from").uint(32)), To: uint32(v.get("to").uint(32))}
	})
	spec.Errors = rows(file.get("errors"), func(k, v node) *model.ErrorCode {
		return &model.ErrorCode{
			Named:     named(k.str(), k, v),
			Code:      uint32(v.get("code").uint(32)),
			Domain:    v.get("domain").str(),
			CarriedBy: v.get("carried_by").str(),
			Retry:     v.get("retry").str(),
			Outcome:   v.get("outcome").str(),
			Class:     v.get("class").str(),
		}
	})
	spec.Local = rows(file.get("local"), func(k, v node) *model.LocalError {
		return &model.LocalError{
			Named:   named(k.str(), k, v),
			Retry:   v.get("retry").str(),
			Outcome: v.get("outcome").str(),
			Class:   v.get("class").str(),
			Reasons: v.get("reasons").strings(),
		}
	})
	spec.Classes = rows(file.get("classes"), func(k, v node) *model.ErrorClass {
		return &model.ErrorClass{Named: named(k.str(), k, v), Parent: v.get("parent").str()}
	})
}

func (l *loader) bounds() []*model.Bound {
	return rows(l.file("bounds").get("bounds"), func(k, v node) *model.Bound {
		return &model.Bound{
			Named:             named(k.str(), k, v),
			Default:           v.get("default").integer(),
			Minus:             v.get("minus").strings(),
			Unit:              v.get("unit").str(),
			Scope:             v.get("scope").str(),
			ChosenBy:          v.get("chosen_by").str(),
			OperatorMayChange: v.get("operator_may_change").boolean(),
			Reaction:          v.get("reaction").str(),
			Codes:             v.get("codes").strings(),
			Beyond:            v.get("beyond").str(),
			Because:           v.get("because").str(),
		}
	})
}

func (l *loader) wire() model.Wire {
	file := l.file("wire")
	w := model.Wire{
		Pos:             file.pos(),
		Version:         uint16(file.get("version").uint(16)),
		Framing:         framing(file.get("framing")),
		LabelRequest:    file.path("label", "request").str(),
		LabelReply:      file.path("label", "reply").str(),
		LabelClauses:    file.path("label", "clauses").strings(),
		EnvelopeClauses: file.path("envelopes", "clauses").strings(),
		Forms:           rows(file.get("answer_forms"), answerForm),
		Capabilities:    list(file.get("capabilities"), capability),
		CloseReasons:    list(file.get("close_reasons"), closeReason),
		CloseTextMax:    file.get("close_text_max").str(),
		Outbound:        rows(file.get("outbound"), outboundShare),
		Reserved:        list(file.get("reserved"), numberRange),
		FixedTexts:      rows(file.get("fixed_texts"), fixedText),
	}
	for k, v := range file.get("envelopes").pairs() {
		if k.str() != "clauses" {
			w.Envelopes = append(w.Envelopes, envelope(k, v))
		}
	}
	return w
}

func framing(v node) model.Framing {
	prefix, record, records := v.get("stream_prefix"), v.get("record"), v.get("records_per_message")
	return model.Framing{
		Pos:           v.pos(),
		ByteOrder:     v.get("byte_order").str(),
		PrefixType:    prefix.get("type").str(),
		PrefixMax:     prefix.get("max").str(),
		PrefixSentMax: prefix.get("sent_max").str(),
		PrefixDoc:     prefix.get("doc").str(),
		NarrowType:    record.path("type", "narrow").str(),
		Escape:        record.path("type", "escape").integer(),
		WideType:      record.path("type", "wide").str(),
		TypeDoc:       record.path("type", "doc").str(),
		LengthType:    record.path("length", "type").str(),
		LengthMax:     record.path("length", "max").str(),
		ReplyMax:      record.path("length", "reply_max").str(),
		RecordsMin:    records.get("min").integer(),
		RecordsMax:    records.get("max").str(),
		Clauses:       v.get("clauses").strings(),
	}
}

func envelope(k, v node) *model.Envelope {
	return &model.Envelope{
		Named:  named(k.str(), k, v),
		Status: uint8(v.get("status").uint(8)),
		Fields: list(v.get("fields"), field),
	}
}

func answerForm(k, v node) *model.AnswerForm {
	labelled := v.get("labelled").str()
	return &model.AnswerForm{
		Named:           named(k.str(), k, v),
		Unlabelled:      v.get("unlabelled").str(),
		Labelled:        labelled,
		IngressLabelled: cmp.Or(v.get("ingress_labelled").str(), labelled),
		Negotiated:      v.get("negotiated").str(),
		Carried:         v.get("carried").boolean(),
	}
}

func capability(v node) *model.Capability {
	return &model.Capability{
		Named:     named(v.get("name").str(), v, v),
		Bit:       int(v.get("bit").integer()),
		Announced: v.get("announced").boolean(),
		Needs:     v.get("needs").str(),
		WaitsFor:  v.get("waits_for").str(),
	}
}

func closeReason(v node) *model.CloseReason {
	return &model.CloseReason{
		Named:     named(v.get("name").str(), v, v),
		Text:      v.get("text").str(),
		WebSocket: int(v.get("websocket").integer()),
		Detail:    v.get("detail").boolean(),
		Clause:    v.get("clause").str(),
	}
}

func outboundShare(k, v node) *model.OutboundShare {
	return &model.OutboundShare{
		Named:  named(k.str(), k, v),
		Frames: v.get("frames").str(),
		Bytes:  v.get("bytes").str(),
		Full:   v.get("full").str(),
		Clause: v.get("clause").str(),
	}
}

func numberRange(v node) *model.ReservedRange {
	return &model.ReservedRange{
		Pos:  v.pos(),
		From: int(v.get("from").integer()),
		To:   int(v.get("to").integer()),
		For:  v.get("for").str(),
	}
}

func fixedText(k, v node) *model.FixedText {
	return &model.FixedText{
		Named:  named(k.str(), k, v),
		Text:   v.get("text").str(),
		Bound:  v.get("bound").str(),
		Clause: v.get("clause").str(),
	}
}

func (l *loader) routes() model.Routes {
	file := l.file("routes")
	g := file.get("grammar")
	return model.Routes{
		Pos:                 g.pos(),
		Separator:           g.get("separator").str(),
		SegmentSeparator:    g.get("segment_separator").str(),
		One:                 g.get("one").str(),
		Many:                g.get("many").str(),
		Forbidden:           g.get("forbidden").str(),
		Bytes:               g.get("bytes").str(),
		Segments:            g.get("segments").str(),
		ContainmentSegments: g.path("containment", "segments").str(),
		ContainmentStates:   g.path("containment", "states").str(),
		Clauses:             g.get("clauses").strings(),
		Reasons: list(file.get("reasons"), func(v node) *model.RouteReason {
			return &model.RouteReason{Named: named(v.get("name").str(), v, v), Clause: v.get("clause").str(), FixedText: v.get("fixed_text").str()}
		}),
		Schemes: rows(file.get("schemes"), func(k, v node) *model.Scheme {
			return &model.Scheme{
				Named:        named(k.str(), k, v),
				Depth:        int(v.get("depth").integer()), // flexible reads as 0
				Segments:     v.get("segments").strings(),
				Schemeless:   v.get("schemeless").boolean(),
				ReservedFrom: int(v.path("reserved", "from").integer()),
				Reserved:     v.path("reserved", "words").strings(),
				Shapes:       v.get("shapes").strings(),
				Clauses:      v.get("clauses").strings(),
			}
		}),
	}
}

func (l *loader) sdk() model.SDK {
	file := l.file("sdk")
	return model.SDK{
		Pos: file.pos(),
		Packages: rows(file.get("packages"), func(k, v node) *model.Package {
			return &model.Package{Named: named(k.str(), k, v), Values: v.keyValues("doc")}
		}),
		Acronyms: file.get("acronyms").strings(),
		URLEnv:   file.path("environment", "url").str(),
		CommandLine: rows(file.path("environment", "command_line"), func(k, v node) *model.EnvVariable {
			return &model.EnvVariable{Named: named(k.str(), k, v), Env: v.get("name").str()}
		}),
		Defaults: rows(file.get("defaults"), func(k, v node) *model.Default {
			return &model.Default{
				Named:  named(k.str(), k, v),
				Bound:  v.get("bound").str(),
				Value:  v.get("value").str(),
				Unit:   v.get("unit").str(),
				Clause: v.get("clause").str(),
				Extra:  v.keyValues("doc", "bound", "value", "unit", "clause"),
			}
		}),
		States: rows(file.get("states"), func(k, v node) *model.StateList {
			return &model.StateList{Named: named(k.str(), k, v), States: v.strings()}
		}),
		Telemetry: telemetry(file.get("telemetry")),
	}
}

func telemetry(n node) model.Telemetry {
	table := func(name string) []*model.TelemetryName {
		return rows(n.get(name), func(k, v node) *model.TelemetryName {
			return &model.TelemetryName{Named: named(k.str(), k, v), Text: v.get("name").str(), Kind: v.get("kind").str(), Unit: v.get("unit").str()}
		})
	}
	return model.Telemetry{
		System: n.get("system").str(), Operations: table("operations"), Attributes: table("attributes"), Metrics: table("metrics"),
		Events: table("events"),
	}
}

func (l *loader) broker() model.Broker {
	file := l.file("broker")
	return model.Broker{
		Pos:       file.pos(),
		EnvPrefix: file.get("environment_prefix").str(),
		Listeners: rows(file.get("listeners"), func(k, v node) *model.Listener {
			return &model.Listener{
				Named:     named(k.str(), k, v),
				Address:   v.get("address").str(),
				Transport: v.get("transport").str(),
				Flag:      v.get("flag").str(),
				Env:       v.get("env").str(),
				Path:      v.get("path").str(),
			}
		}),
		Settings: rows(file.get("settings"), func(k, v node) *model.Setting {
			return &model.Setting{
				Named:   named(k.str(), k, v),
				Type:    v.get("type").str(),
				Default: v.get("default").str(),
				Flag:    v.get("flag").str(),
				Env:     v.get("env").str(),
				Values:  v.get("values").strings(),
				Aliases: v.get("aliases").strings(),
			}
		}),
		FileCheckMs: file.get("file_check_ms").integer(),
		KeySets: model.KeySets{
			UnknownKeyPauseMs: file.path("key_sets", "unknown_key_pause_ms").integer(),
			RefreshMs:         file.path("key_sets", "refresh_ms").integer(),
			FetchTimeoutMs:    file.path("key_sets", "fetch_timeout_ms").integer(),
		},
		Development:   development(file.get("development")),
		HelloDelayMin: file.path("hello_delay_ms", "min").integer(),
		HelloDelayMax: file.path("hello_delay_ms", "max").integer(),
		Aliases: rows(file.get("aliases"), func(k, v node) *model.Alias {
			return &model.Alias{
				Named:         named(k.str(), k, v),
				Sets:          v.get("sets").str(),
				WaitsFor:      v.get("waits_for").str(),
				Refuse:        v.get("refuse").str(),
				Secret:        v.get("secret").boolean(),
				WithoutEffect: v.get("without_effect").boolean(),
			}
		}),
		AnonymousFamily: uint32(file.path("admin", "anonymous_family").uint(32)),
	}
}

func development(n node) model.Development {
	return model.Development{
		HMACSecret: n.get("hmac_secret").str(), Issuer: n.get("issuer").str(), Audience: n.get("audience").str(), Subject: n.get("subject").str(),
		Families: rows(n.get("families"), func(k, v node) *model.DevelopmentFamily {
			return &model.DevelopmentFamily{Named: named(k.str(), k, v), Number: uint32(v.uint(32))}
		}),
	}
}

func (l *loader) metrics() []*model.MetricGroup {
	return rows(l.file("metrics").get("metrics"), func(k, v node) *model.MetricGroup {
		return &model.MetricGroup{Named: named(k.str(), k, v), Metrics: list(v, metric)}
	})
}

func metric(v node) *model.Metric {
	m := &model.Metric{Named: named(v.get("name").str(), v, v), Type: v.get("type").str(), Labels: v.get("labels").strings()}
	for _, b := range v.get("buckets").items() {
		m.Buckets = append(m.Buckets, b.float())
	}
	return m
}

func (l *loader) invariants() []*model.Invariant {
	return list(l.file("invariants").get("invariants"), func(v node) *model.Invariant {
		return &model.Invariant{
			Named:    named(v.get("name").str(), v, v),
			Number:   int(v.get("number").integer()),
			State:    v.get("state").str(),
			WaitsFor: v.get("waits_for").str(),
			Checks:   list(v.get("checks"), proof),
		}
	})
}

func (l *loader) clauses() []*model.Clause {
	return rows(l.file("clauses").get("clauses"), func(k, v node) *model.Clause {
		return &model.Clause{Pos: k.pos(), ID: k.str(), Proofs: list(v.get("proof"), proof), Later: v.get("later").str()}
	})
}

// proofKinds is the ways in which something can be proved.
var proofKinds = []string{"test", "scenario", "rule", "generated"}

func proof(v node) *model.Proof {
	p := &model.Proof{Pos: v.pos()}
	for k, value := range v.pairs() {
		if slices.Contains(proofKinds, k.str()) {
			p.Kind, p.Target = k.str(), value.str()
		}
	}
	return p
}
