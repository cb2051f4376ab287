package emit

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

const (
	prometheusPath = "github.com/prometheus/client_golang/prometheus"
	promautoPath   = prometheusPath + "/promauto"
)

func init() { register("metrics", metricsFiles) }

// metricsFiles makes package metrics: one struct of collectors for each group.
func metricsFiles(spec *model.Spec) ([]File, error) {
	names := newNamer(spec)
	f := newGoFile(spec, metricsPath, "metrics.go")
	f.ImportName(prometheusPath, "prometheus")
	f.ImportName(promautoPath, "promauto")
	f.PackageComment("// Package metrics holds the collectors of the broker, one struct for each domain or layer. Labels never hold routes, owners or session numbers.")
	for _, group := range spec.Metrics {
		metricGroup(f, spec, names, group)
	}
	return renderAll(f)
}

func metricGroup(f *goFile, spec *model.Spec, names namer, group *model.MetricGroup) {
	typ := names.exported(group.Name)
	f.Add(doc(fmt.Sprintf("%s are the collectors of the group %s.", typ, group.Name)))
	f.Type().Id(typ).StructFunc(func(s *jen.Group) {
		for _, m := range group.Metrics {
			s.Add(doc(metricDoc(spec, names, group, m)))
			s.Id(metricField(spec, names, group, m)).Add(metricType(m))
		}
	})
	f.Line()
	f.Add(doc(fmt.Sprintf("New%s makes the collectors and registers them; with a nil Registerer they are not registered. It panics when one of them is registered already.", typ)))
	p := &pairs{}
	for _, m := range group.Metrics {
		p.add(metricField(spec, names, group, m), newMetric(m))
	}
	f.Func().Id("New"+typ).Params(jen.Id("reg").Qual(prometheusPath, "Registerer")).Op("*").Id(typ).Block(
		jen.Id("factory").Op(":=").Qual(promautoPath, "With").Call(jen.Id("reg")),
		jen.Return(jen.Op("&").Id(typ).Values(p.block()...)),
	)
	f.Line()
}

// metricField is the metric without the prefixes that its struct implies.
func metricField(spec *model.Spec, names namer, group *model.MetricGroup, m *model.Metric) string {
	name := strings.TrimPrefix(m.Name, spec.Protocol+"_")
	return names.exported(strings.TrimPrefix(name, group.Name+"_"))
}

func metricDoc(spec *model.Spec, names namer, group *model.MetricGroup, m *model.Metric) string {
	text := fmt.Sprintf("%s is %s: %s", metricField(spec, names, group, m), m.Name, lower(m.Doc))
	if len(m.Labels) > 0 {
		text += "; labels: " + strings.Join(m.Labels, ", ")
	}
	return sentence(text)
}

func metricType(m *model.Metric) jen.Code {
	name := upperFirst(m.Type)
	if len(m.Labels) > 0 {
		return jen.Op("*").Qual(prometheusPath, name+"Vec")
	}
	return jen.Qual(prometheusPath, name)
}

func newMetric(m *model.Metric) jen.Code {
	name := upperFirst(m.Type)
	opts := &pairs{}
	opts.text("Name", m.Name)
	opts.text("Help", m.Doc)
	if len(m.Buckets) > 0 {
		opts.add("Buckets", jen.Index().Float64().ValuesFunc(func(v *jen.Group) {
			for _, b := range m.Buckets {
				v.Lit(b)
			}
		}))
	}
	args := []jen.Code{jen.Qual(prometheusPath, name+"Opts").Values(opts.line()...)}
	if len(m.Labels) > 0 {
		name += "Vec"
		args = append(args, literals(m.Labels))
	}
	return jen.Id("factory").Dot("New" + name).Call(args...)
}
