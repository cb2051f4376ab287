// Package model is the specification after loading: plain values with the position of every part, ready for rules and emitters.
//
// The loader fills it from YAML nodes; rules look at it and report findings; emitters only read it. Nothing in it knows a message,
// a code or a bound of a particular protocol.
package model

import "math/big"

// Pos is a place in a spec file. Line and Col count from 1; a zero Line means the file as a whole.
type Pos struct {
	File      string
	Line, Col int
}

// Spec is one whole specification.
type Spec struct {
	Pos         Pos
	Protocol    string // name in lower case, prefix of metric and setting names
	Title       string
	Version     string
	Doc         string
	Dir         string // folder of the index, as it was named by the caller
	Reference   string // folder of the normative text, relative to the index
	Tree        string // root of the source tree whose tests prove clauses, relative to the index
	Fingerprint uint64 // first eight bytes of SHA-256 over the canonical form (wire.md section 5)
	Index       string // file name of the index in Dir

	// Sources is the text of every file of the specification, by its path from Dir, for whoever reads it without this model.
	Sources map[string][]byte

	Wire       Wire
	Bounds     []*Bound
	Errors     []*ErrorCode
	Local      []*LocalError
	Classes    []*ErrorClass
	CodeRanges []*CodeRange
	Routes     Routes
	SDK        SDK
	Broker     Broker
	Admin      Admin
	Metrics    []*MetricGroup
	Invariants []*Invariant
	Clauses    []*Clause
	Domains    []*Domain
}

// Named is what every named part of a spec has.
type Named struct {
	Name string
	Doc  string
	Pos  Pos
	At   map[string]Pos // places of the keys and items below this part, by path: "bound", "errors/2", "access/on"
}

// Where is the place of a key or item below this part, or of the part itself when there is none.
func (n Named) Where(path string) Pos {
	if pos, ok := n.At[path]; ok {
		return pos
	}
	return n.Pos
}

// Bound is one row of bounds.yaml.
type Bound struct {
	Named
	Default           int64
	Minus             []string // fields whose byte length is taken off
	Unit, Scope       string
	ChosenBy          string // peer or local
	OperatorMayChange bool
	Reaction          string
	Codes             []string
	Beyond, Because   string
}

// ErrorCode is one row of the registry.
type ErrorCode struct {
	Named
	Code           uint32
	Domain         string
	CarriedBy      string
	Retry, Outcome string
	Class          string
}

// CodeRange is the numbers from which a domain takes its error codes.
type CodeRange struct {
	Named    // the domain
	From, To uint32
}

// LocalError is a condition that an SDK finds by itself.
type LocalError struct {
	Named
	Retry, Outcome, Class string
	Reasons               []string
}

// ErrorClass is one class of the SDKs.
type ErrorClass struct {
	Named
	Parent string
}

// Wire is framing, envelopes, capabilities, close reasons and outbound shares.
type Wire struct {
	Pos             Pos
	Version         uint16
	Framing         Framing
	LabelRequest    string
	LabelReply      string
	LabelClauses    []string
	Envelopes       []*Envelope
	EnvelopeClauses []string
	Forms           []*AnswerForm
	Capabilities    []*Capability
	CloseReasons    []*CloseReason
	CloseTextMax    string // bound
	Outbound        []*OutboundShare
	Reserved        []*ReservedRange
	FixedTexts      []*FixedText
}

// Framing is how records become transport messages.
type Framing struct {
	Pos           Pos
	ByteOrder     string
	PrefixType    string
	PrefixMax     string // bound
	PrefixSentMax string // bound
	NarrowType    string
	Escape        int64
	WideType      string
	LengthType    string
	LengthMax     string // bound
	ReplyMax      string // bound of a value that the broker sends
	RecordsMin    int64
	RecordsMax    string // bound
	PrefixDoc     string
	TypeDoc       string
	Clauses       []string
}

// Envelope is one form in which a reply starts.
type Envelope struct {
	Named
	Status uint8
	Fields []*Field
}

// AnswerForm says which envelope a refusal has, by what the request was.
type AnswerForm struct {
	Named
	Unlabelled, Labelled string // envelopes
	IngressLabelled      string // envelope of a refusal made before the domain, to a labelled request; Labelled where not given
	Negotiated           string // envelope in a negotiated session
	Carried              bool   // the envelope is the body of the message that answers
}

// Capability is one bit of the hello.
type Capability struct {
	Named
	Bit       int
	Announced bool
	Needs     string
	WaitsFor  string
}

// CloseReason is one way in which the broker closes a session.
type CloseReason struct {
	Named
	Text      string
	WebSocket int
	Detail    bool // the text is followed by a detail
	Clause    string
}

// OutboundShare is one budget of the outbound queue.
type OutboundShare struct {
	Named
	Frames, Bytes string // bounds
	Full          string
	Clause        string
}

// ReservedRange is a range of message numbers that nothing may use yet.
type ReservedRange struct {
	Pos      Pos
	From, To int
	For      string // capability
}

// FixedText is a message text that is part of the contract. Placeholders stand in braces.
type FixedText struct {
	Named
	Text   string
	Bound  string
	Clause string
}

// Routes is the grammar and its use by each scheme.
type Routes struct {
	Pos                                    Pos
	Separator, SegmentSeparator, One, Many string
	Forbidden                              string
	Bytes, Segments                        string // bounds
	ContainmentSegments, ContainmentStates string // bounds
	Clauses                                []string
	Reasons                                []*RouteReason
	Schemes                                []*Scheme
}

// RouteReason is one reason word, in check order.
type RouteReason struct {
	Named
	Clause    string
	FixedText string
}

// Scheme is the grammar of one domain. Depth 0 means flexible.
type Scheme struct {
	Named
	Depth        int
	Segments     []string
	Schemeless   bool
	ReservedFrom int
	Reserved     []string
	Shapes       []string
	Clauses      []string
}

// Domain is one file of messages.
type Domain struct {
	Named
	Number     int
	Extra      []*ReservedRange // message numbers beside its own hundred; For is empty
	Scheme     string           // scheme of its routes, "" when it has none
	Faults     Faults
	Enums      []*Enum
	Structs    []*Struct
	Unions     []*Union
	Operations []*Operation
	Messages   []*Message
	Reasons    []*ReasonTable
}

// Faults says what answers a mistake that is found before the domain is asked: a code name, close:<reason> or drop.
type Faults struct {
	Pos                                   Pos
	Malformed, Route, Denied, NotAccepted string
}

// Enum is a numbered set of names.
type Enum struct {
	Named
	Type   string
	Closed bool
	Values []*EnumValue
}

// EnumValue is one member of an Enum.
type EnumValue struct {
	Named
	Value uint64
}

// Struct is a group of fields used by messages.
type Struct struct {
	Named
	Fields  []*Field
	Clauses []string
}

// Union is a value whose fields depend on a number in front of them.
type Union struct {
	Named
	Tag      string // integer type of the number
	Variants []*Variant
	Clauses  []string
}

// Variant is one form of a Union.
type Variant struct {
	Named
	Value  uint64
	Fields []*Field
}

// Operation is a request with its reply.
type Operation struct {
	Named
	Number     int
	SDKName    string
	Access     *Access
	Faults     Faults // merged with those of the domain
	Request    []*Field
	Reply      []*Field
	NoReply    bool   // success is not answered; only a refusal is
	AnsweredBy string // message of class reply that answers, "" when a reply of the same number does
	Deferred   *Deferred
	Errors     []string
	ReadOnly   bool
	Idempotent []string
	Paged      *Paged
	Registers  string
	Envelope   string
	Needs      string
	Clauses    []string
}

// Access is what a caller must be allowed to do.
type Access struct {
	Pos   Pos
	Level string // read, write, all, session
	On    string // field, "" for session and everything
	As    string // exact, contained, everything
}

// Deferred says that a second reply may follow.
type Deferred struct {
	Pos         Pos
	Field       string
	After       []string // enum values of Field
	Reply       string   // operation whose reply it is
	Cancellable bool
}

// Paged names the fields that make an operation a listing.
type Paged struct {
	Pos             Pos
	By, Items, Next string
}

// Message is a control or push message.
type Message struct {
	Named
	Number       int
	Class        string // control, push, reply
	Direction    string // to_broker, to_client, both
	Needs        string
	AnsweredBy   string
	Malformed    string // overrides the domain: a code name, close:<reason> or drop
	LaterIgnored bool
	Overflow     string
	Fields       []*Field
	Clauses      []string
}

// ReasonTable is a list of reason texts of one code, in check order.
type ReasonTable struct {
	Named
	Code   string
	Values []*ReasonValue
}

// ReasonValue is one reason.
type ReasonValue struct {
	Named
	Text   string
	Clause string
}

// Field is one field of a message or struct.
type Field struct {
	Named
	Type         string // u8 u16 u32 u64 bool uuid string bytes route selector, list<T>, or the name of an enum or struct
	Elem         string // element of a list
	Unit         string
	Format       string
	Role         string
	Bound        string // bound name
	Bytes        string // bound of the encoded bytes of a list
	Min          *Number
	Max          *Number
	Above        string // refuse, clamp, cut
	Text         string // text of the refusal
	Code         string // code of the refusal when it is not the malformed one
	Default      *Number
	Const        *Number
	Nonzero      bool
	Late         bool
	Length       string // integer type of a length in front of a struct
	LaterIgnored bool   // bytes after the known fields of a value with Length are ignored
	MaxBytes     string // bound of the bytes of an endpoint
	Form         string // how the end of a list is known: counted (a count in front), flagged (a bool8 in front of each item), until_end
	Count        string // integer type of the count of a counted list
	Presence     Presence
}

// Presence says when a field is on the wire.
type Presence struct {
	Kind  PresenceKind
	Field string // PresentWhen: the bool or bit field decoded before
	Bit   string // PresentWhen: capability bit of Field
}

// PresenceKind is how the presence of a field is known.
type PresenceKind uint8

// The ways in which the presence of a field is known.
const (
	Always      PresenceKind = iota
	Flagged                  // a bool8 stands in front
	Tail                     // present iff bytes remain
	Rest                     // all remaining bytes, without a length
	PresentWhen              // an earlier field says so
	TailFlagged              // present iff bytes remain, and then a bool8 stands in front
)

// Number is a literal or the name of a bound.
type Number struct {
	Pos   Pos
	Value *big.Int // nil when Bound is set
	Bound string
	Enum  string // name of the enum value that Value belongs to, "" for a plain number
}

// SDK is what the SDKs share.
type SDK struct {
	Pos      Pos
	Packages []*Package
	Acronyms []string
	URLEnv   string
	// CommandLine are the environment variables of the command line, by the name of what they set.
	CommandLine []*EnvVariable
	Defaults    []*Default
	States      []*StateList

	Telemetry Telemetry
}

// EnvVariable is the name of an environment variable.
type EnvVariable struct {
	Named
	Env string
}

// Telemetry is what the SDKs call their spans, attributes, metrics and events.
type Telemetry struct {
	System                                  string
	Operations, Attributes, Metrics, Events []*TelemetryName
}

// TelemetryName is one name of telemetry. Kind and Unit are those of a metric.
type TelemetryName struct {
	Named
	Text, Kind, Unit string
}

// Package names the package of one language.
type Package struct {
	Named
	Values []KeyValue // module, import, package, namespace in file order
}

// KeyValue is one pair in file order.
type KeyValue struct{ Key, Value string }

// Default is one default of the SDKs: a bound, a value with a unit, or a backoff.
type Default struct {
	Named
	Bound  string
	Value  string
	Unit   string
	Clause string
	Extra  []KeyValue // first, cap, factor, jitter, …
}

// StateList is the states of one machine.
type StateList struct {
	Named
	States []string
}

// Broker is what an operator can say.
type Broker struct {
	Pos             Pos
	EnvPrefix       string
	Listeners       []*Listener
	Settings        []*Setting
	HelloDelayMin   int64
	HelloDelayMax   int64
	FileCheckMs     int64
	KeySets         KeySets
	Development     Development
	Aliases         []*Alias
	AnonymousFamily uint32
}

// KeySets says when the key sets of issuers with a URL are fetched, in milliseconds.
type KeySets struct {
	UnknownKeyPauseMs, RefreshMs, FetchTimeoutMs int64
}

// Listener is one default listener.
type Listener struct {
	Named
	Address, Transport, Flag, Env, Path string
}

// Setting is one setting that is not a bound.
type Setting struct {
	Named
	Type, Default, Flag, Env string
	Values, Aliases          []string
}

// Development is what suites and examples use.
type Development struct {
	HMACSecret, Issuer, Audience, Subject string
	Families                              []*DevelopmentFamily
}

// DevelopmentFamily is one of their families. Its name is the value of the claim.
type DevelopmentFamily struct {
	Named
	Number uint32
}

// Alias is an environment name of the public broker.
type Alias struct {
	Named
	Sets, WaitsFor, Refuse string
	Secret, WithoutEffect  bool
}

// MetricGroup is the metrics of one domain or layer.
type MetricGroup struct {
	Named
	Metrics []*Metric
}

// Metric is one metric.
type Metric struct {
	Named
	Type    string
	Labels  []string
	Buckets []float64
}

// Invariant is one of the rules that every change keeps.
type Invariant struct {
	Named
	Number   int
	State    string // enforced, waits
	WaitsFor string
	Checks   []*Proof
}

// Clause is one rule id of the reference with its proof.
type Clause struct {
	Pos    Pos
	ID     string
	Proofs []*Proof
	Later  string
}

// Proof names one check: a test, a scenario, a rule or a generated check.
type Proof struct {
	Pos    Pos
	Kind   string // test, scenario, rule, generated
	Target string // "broker/lease TestAcquireHeldByOther"
}
