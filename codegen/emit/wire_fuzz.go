package emit

import (
	"encoding/hex"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("wire fuzz targets", wireFuzz) }

// wireFuzz makes a fuzz target for every decoder, seeded with an example of its value.
func wireFuzz(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	g := messageGen{p, newGoFile(spec, wirePath, "wire_fuzz_test.go")}
	for _, d := range p.domains {
		for _, r := range d.records {
			if r.union == nil {
				g.fuzzTarget(r)
			}
		}
	}
	g.fuzzRefusal()
	g.fuzzValue()
	return renderAll(g.f)
}

func (g messageGen) fuzzTarget(r *record) {
	seed := hex.EncodeToString(exampleBytes(g.examplePieces(r)))
	g.f.Func().Id("Fuzz" + r.goName).Params(jen.Id("f").Op("*").Qual("testing", "F")).Block(
		jen.Id("fuzzValue").Call(jen.Id("f"), jen.Op("&").Id(layoutVar(r)), jen.Id("newValue").Types(jen.Id(r.goName)),
			jen.Id("newView").Types(jen.Id(r.goName+"View")), jen.Lit(seed)),
	)
	g.f.Line()
}

// fuzzRefusal writes the target of the error envelopes.
func (g messageGen) fuzzRefusal() {
	g.f.Func().Id("FuzzRefusal").Params(jen.Id("f").Op("*").Qual("testing", "F")).Block(
		jen.Id("f").Dot("Add").Call(jen.Id("AppendCoded").Call(jen.Nil(), jen.Id("Codes").Index(jen.Lit(0)).Dot("Code"), jen.Lit("busy"))),
		jen.Id("f").Dot("Add").Call(jen.Id("AppendPlain").Call(jen.Nil(), jen.Lit("busy"))),
		jen.Id("f").Dot("Add").Call(jen.Id("AppendStreamCoded").Call(jen.Nil(), jen.Id("Codes").Index(jen.Lit(0)).Dot("Code"), jen.Lit("busy"))),
		jen.Id("f").Dot("Fuzz").Call(jen.Func().Params(jen.Id("t").Op("*").Qual("testing", "T"), jen.Id("value").Index().Byte()).Block(
			jen.List(jen.Id("refusal"), jen.Id("ok")).Op(":=").Id("DecodeRefusal").Call(jen.Id("value")),
			jen.If(jen.Op("!").Id("ok")).Block(jen.Return()),
			jen.Id("again").Op(":=").Id("AppendPlain").Call(jen.Nil(), jen.Id("refusal").Dot("Message")),
			jen.If(jen.Id("refusal").Dot("HasCode")).Block(jen.Id("again").Op("=").Id("AppendCoded").Call(jen.Nil(), jen.Id("refusal").Dot("Code"), jen.Id("refusal").Dot("Message"))),
			jen.List(jen.Id("same"), jen.Id("ok")).Op(":=").Id("DecodeRefusal").Call(jen.Id("again")),
			jen.If(jen.Op("!").Id("ok").Op("||").Id("same").Op("!=").Id("refusal")).Block(
				jen.Id("t").Dot("Fatalf").Call(jen.Lit("%+v became %+v"), jen.Id("refusal"), jen.Id("same"))),
		)),
	)
	g.f.Line()
}

// fuzzValue writes what every target does.
func (g messageGen) fuzzValue() {
	g.f.Add(doc("fuzzValue feeds any bytes to the view, the owned decoder and the annotator: they agree, spans touch each other, and what is accepted survives another round."))
	g.f.Func().Id("fuzzValue").Params(
		jen.Id("f").Op("*").Qual("testing", "F"),
		jen.Id("layout").Op("*").Qual(codecPath, "Layout"),
		jen.Id("newOwned").Func().Params().Id("Value"),
		jen.Id("newView").Func().Params().Id("View"),
		jen.Id("seed").String(),
	).Block(
		jen.List(jen.Id("example"), jen.Err()).Op(":=").Qual("encoding/hex", "DecodeString").Call(jen.Id("seed")),
		jen.If(jen.Err().Op("!=").Nil()).Block(jen.Id("f").Dot("Fatal").Call(jen.Err())),
		jen.Id("f").Dot("Add").Call(jen.Id("example")),
		jen.Id("addVectors").Call(jen.Id("f")),
		jen.Id("f").Dot("Fuzz").Call(jen.Func().Params(jen.Id("t").Op("*").Qual("testing", "T"), jen.Id("value").Index().Byte()).Block(
			jen.Id("owned").Op(":=").Id("newOwned").Call(),
			jen.Id("decoded").Op(":=").Qual(codecPath, "AsError").Call(jen.Id("owned").Dot("DecodeValue").Call(jen.Id("value"))),
			jen.Id("viewed").Op(":=").Qual(codecPath, "AsError").Call(jen.Id("newView").Call().Dot("DecodeValue").Call(jen.Id("value"))),
			jen.List(jen.Id("spans"), jen.Id("annotated")).Op(":=").Qual(codecPath, "Annotate").Call(jen.Id("layout"), jen.Id("value")),
			jen.If(jen.Op("!").Qual("reflect", "DeepEqual").Call(jen.Id("decoded"), jen.Id("viewed")).Op("||").Op("!").Qual("reflect", "DeepEqual").Call(jen.Id("decoded"), jen.Id("annotated"))).Block(
				jen.Id("t").Dot("Fatalf").Call(jen.Lit("owned %v, view %v, annotator %v"), jen.Id("decoded"), jen.Id("viewed"), jen.Id("annotated"))),
			jen.Id("checkSpans").Call(jen.Id("t"), jen.Id("value"), jen.Id("spans"), jen.Id("decoded")),
			jen.If(jen.Id("decoded").Op("!=").Nil()).Block(jen.Return()),
			jen.List(jen.Id("encoded"), jen.Err()).Op(":=").Id("owned").Dot("AppendValue").Call(jen.Nil()),
			jen.If(jen.Err().Op("!=").Nil()).Block(jen.Id("t").Dot("Fatalf").Call(jen.Lit("a value that was accepted is refused: %v"), jen.Err())),
			jen.Id("again").Op(":=").Id("newOwned").Call(),
			jen.If(jen.Err().Op(":=").Id("again").Dot("DecodeValue").Call(jen.Id("encoded")), jen.Err().Op("!=").Nil().Op("||").Op("!").Qual("reflect", "DeepEqual").Call(jen.Id("again"), jen.Id("owned"))).Block(
				jen.Id("t").Dot("Fatalf").Call(jen.Lit("%+v became %+v: %v"), jen.Id("owned"), jen.Id("again"), jen.Err())),
		)),
	)
	g.f.Line()
	g.addVectors()
	g.f.Func().Id("checkSpans").Params(jen.Id("t").Op("*").Qual("testing", "T"), jen.Id("value").Index().Byte(), jen.Id("spans").Index().Qual(codecPath, "Span"), jen.Id("mistake").Op("*").Qual(codecPath, "Error")).Block(
		jen.Id("t").Dot("Helper").Call(),
		jen.Id("end").Op(":=").Lit(0),
		jen.For(jen.List(jen.Id("_"), jen.Id("s")).Op(":=").Range().Id("spans")).Block(
			jen.If(jen.Id("s").Dot("Offset").Op("!=").Id("end").Op("||").Id("s").Dot("Len").Op("<=").Lit(0)).Block(
				jen.Id("t").Dot("Fatalf").Call(jen.Lit("span %+v does not begin at %d"), jen.Id("s"), jen.Id("end"))),
			jen.Id("end").Op("+=").Id("s").Dot("Len"),
		),
		jen.If(jen.Op("!").Qual(codecPath, "Malformed").Call(jen.Id("asError").Call(jen.Id("mistake"))).Op("&&").Id("end").Op("!=").Len(jen.Id("value"))).Block(
			jen.Id("t").Dot("Fatalf").Call(jen.Lit("%d of %d bytes are named"), jen.Id("end"), jen.Len(jen.Id("value")))),
	)
	g.f.Line()
	g.f.Func().Id("asError").Params(jen.Id("mistake").Op("*").Qual(codecPath, "Error")).Error().Block(
		jen.If(jen.Id("mistake").Op("==").Nil()).Block(jen.Return(jen.Nil())),
		jen.Return(jen.Id("mistake")),
	)
	g.f.Line()
}

// addVectors writes the seeds that the protocol reference gives.
func (g messageGen) addVectors() {
	g.f.Add(doc("addVectors adds the value of every record of every vector of the protocol reference."))
	g.f.Func().Id("addVectors").Params(jen.Id("f").Op("*").Qual("testing", "F")).Block(
		jen.Id("f").Dot("Helper").Call(),
		jen.Id("vectors").Op(":=").Append(
			jen.Qual(referencePath, "Rows").Call(jen.Id("f"), jen.Parens(jen.Op("*").Qual(referencePath, "Docs")).Dot("WireVectors")),
			jen.Qual(referencePath, "Rows").Call(jen.Id("f"), jen.Parens(jen.Op("*").Qual(referencePath, "Docs")).Dot("LeaseVectors")).Op("..."),
		),
		jen.For(jen.List(jen.Id("_"), jen.Id("v")).Op(":=").Range().Id("vectors")).Block(
			jen.For(jen.List(jen.Id("_"), jen.Id("payload")).Op(":=").Range().Id("v").Dot("Bytes")).Block(
				jen.Id("addRecords").Call(jen.Id("f"), jen.Id("payload")))),
	)
	g.f.Line()
	g.f.Func().Id("addRecords").Params(jen.Id("f").Op("*").Qual("testing", "F"), jen.Id("payload").Index().Byte()).Block(
		jen.Const().Id("prefix").Op("=").Lit(4),
		jen.If(jen.Len(jen.Id("payload")).Op(">").Id("prefix").Op("&&").Int().Call(jen.Qual("encoding/binary", "BigEndian").Dot("Uint32").Call(jen.Id("payload"))).Op("==").Len(jen.Id("payload")).Op("-").Id("prefix")).Block(
			jen.Id("payload").Op("=").Id("payload").Index(jen.Id("prefix"), jen.Empty())),
		jen.For(jen.Len(jen.Id("payload")).Op(">").Lit(0)).Block(
			jen.List(jen.Id("record"), jen.Id("rest"), jen.Err()).Op(":=").Qual(codecPath, "NextRecord").Call(jen.Id("payload")),
			jen.If(jen.Err().Op("!=").Nil()).Block(jen.Id("f").Dot("Fatal").Call(jen.Err())),
			jen.Id("f").Dot("Add").Call(jen.Id("record").Dot("Value")),
			jen.Id("payload").Op("=").Id("rest"),
		),
	)
	g.f.Line()
}
