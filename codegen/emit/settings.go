package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("settings", settingsFiles) }

// settingsFiles makes package settings: what an operator can say to the broker.
func settingsFiles(spec *model.Spec) ([]File, error) {
	g := settingsGen{spec, newNamer(spec), newGoFile(spec, settingsPath, "settings.go")}
	g.f.PackageComment("// Package settings is the table of everything that an operator can say to the broker. Bounds that an operator may change are settings too; they")
	g.f.PackageComment("// stand in package bounds.")
	g.constants()
	g.listeners()
	g.settings()
	g.aliases()
	g.development()
	return renderAll(g.f)
}

type settingsGen struct {
	*model.Spec
	names namer
	f     *goFile
}

func (g settingsGen) constants() {
	b := g.Broker
	g.f.Add(doc("EnvPrefix begins every environment name."))
	g.f.Const().Id("EnvPrefix").Op("=").Lit(b.EnvPrefix)
	g.f.Line()
	g.f.Add(doc("Smallest and largest delay of the hello, in milliseconds."))
	g.f.Const().Defs(jen.Id("HelloDelayMinMs").Op("=").Lit(int(b.HelloDelayMin)), jen.Id("HelloDelayMaxMs").Op("=").Lit(int(b.HelloDelayMax)))
	g.f.Line()
	g.f.Add(doc("FileCheckMs is how often a file that was read is looked at again at most, in milliseconds."))
	g.f.Const().Id("FileCheckMs").Op("=").Lit(int(b.FileCheckMs))
	g.f.Line()
	g.f.Add(doc("When the key sets of issuers with a URL are fetched, in milliseconds: at most so often for unknown key ids (A-04), so often when " +
		"nobody asks, and what one fetch may take."))
	g.f.Const().Defs(
		jen.Id("KeySetUnknownKeyPauseMs").Op("=").Lit(int(b.KeySets.UnknownKeyPauseMs)),
		jen.Id("KeySetRefreshMs").Op("=").Lit(int(b.KeySets.RefreshMs)),
		jen.Id("KeySetFetchTimeoutMs").Op("=").Lit(int(b.KeySets.FetchTimeoutMs)),
	)
	g.f.Line()
	g.f.Add(doc("AnonymousFamily is the family of every anonymous session (A-03)."))
	g.f.Const().Id("AnonymousFamily").Uint32().Op("=").Lit(int(b.AnonymousFamily))
	g.f.Line()
	g.f.Add(doc("Paths of the admin listener."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, p := range g.Admin.Paths {
			c.Id("AdminPath" + g.names.exported(p.Name)).Op("=").Lit(p.Path).Comment(remark(lower(p.Doc)))
		}
	})
	g.f.Line()
}

func (g settingsGen) listeners() {
	g.f.Add(doc("Listener is one listener of the broker."))
	g.f.Type().Id("Listener").Struct(
		jen.Id("Name").String(),
		jen.Id("Address").String().Comment("where it listens unless told otherwise"),
		jen.Id("Transport").String(),
		jen.Id("Path").String().Comment("path that clients use; empty when there is none"),
		jen.Id("Flag").String(),
		jen.Id("Env").String(),
		jen.Id("Doc").String(),
	)
	g.f.Line()
	g.f.Add(doc("The listeners."))
	g.f.Var().DefsFunc(func(v *jen.Group) {
		for _, l := range g.Broker.Listeners {
			p := &pairs{}
			p.text("Name", l.Name)
			p.text("Address", l.Address)
			p.text("Transport", l.Transport)
			p.text("Path", l.Path)
			p.text("Flag", l.Flag)
			p.text("Env", l.Env)
			p.text("Doc", l.Doc)
			v.Id("Listener" + g.names.exported(l.Name)).Op("=").Id("Listener").Values(p.block()...)
		}
	})
	g.f.Line()
	g.f.Add(doc("Listeners are all of them."))
	g.f.Var().Id("Listeners").Op("=").Index().Id("Listener").ValuesFunc(func(v *jen.Group) {
		for _, l := range g.Broker.Listeners {
			v.Id("Listener" + g.names.exported(l.Name))
		}
	})
	g.f.Line()
}

func (g settingsGen) settings() {
	g.f.Add(doc("Setting is one setting that is no bound and no address."))
	g.f.Type().Id("Setting").Struct(
		jen.Id("Name").String().Comment("key in the configuration file"),
		jen.Id("Type").String().Comment("bool, enum, hello, limits, list, number, number_map, path, secret, text or text_map"),
		jen.Id("Default").String(),
		jen.Id("Values").Index().String().Comment("of an enum"),
		jen.Id("Flag").String().Comment("empty for a secret: command lines can be seen by others"),
		jen.Id("Env").String(),
		jen.Id("Aliases").Index().String().Comment("further environment names"),
		jen.Id("Doc").String(),
	)
	g.f.Line()
	g.f.Add(doc("The settings."))
	g.f.Var().DefsFunc(func(v *jen.Group) {
		for _, s := range g.Broker.Settings {
			p := &pairs{}
			p.text("Name", s.Name)
			p.text("Type", s.Type)
			p.text("Default", s.Default)
			p.text("Flag", s.Flag)
			p.text("Env", s.Env)
			p.text("Doc", s.Doc)
			if len(s.Values) > 0 {
				p.add("Values", literals(s.Values))
			}
			if len(s.Aliases) > 0 {
				p.add("Aliases", literals(s.Aliases))
			}
			v.Id("Setting" + g.names.exported(s.Name)).Op("=").Id("Setting").Values(p.block()...)
		}
	})
	g.f.Line()
	g.f.Add(doc("All are all settings."))
	g.f.Var().Id("All").Op("=").Index().Id("Setting").ValuesFunc(func(v *jen.Group) {
		for _, s := range g.Broker.Settings {
			v.Line().Id("Setting" + g.names.exported(s.Name))
		}
		v.Line()
	})
	g.f.Line()
}

func (g settingsGen) aliases() {
	g.f.Add(doc("Alias is an environment name of the public broker (compat.md section 6)."))
	g.f.Type().Id("Alias").Struct(
		jen.Id("Name").String(),
		jen.Id("Sets").String().Comment("what it sets; empty when it sets nothing"),
		jen.Id("WaitsFor").String().Comment("what must be built before it can have an effect"),
		jen.Id("Refuse").String().Comment("value that must be refused until then"),
		jen.Id("Secret").Bool().Comment("its value is never shown"),
		jen.Id("WithoutEffect").Bool().Comment("accepted without effect"),
		jen.Id("Doc").String(),
	)
	g.f.Line()
	g.f.Add(doc("Aliases are all of them."))
	g.f.Var().Id("Aliases").Op("=").Index().Id("Alias").ValuesFunc(func(v *jen.Group) {
		for _, a := range g.Broker.Aliases {
			p := &pairs{}
			p.text("Name", a.Name)
			p.text("Sets", a.Sets)
			p.text("WaitsFor", a.WaitsFor)
			p.text("Refuse", a.Refuse)
			p.text("Doc", a.Doc)
			p.flag("Secret", a.Secret)
			p.flag("WithoutEffect", a.WithoutEffect)
			v.Line().Values(p.line()...)
		}
		v.Line()
	})
	g.f.Line()
}

// development emits what suites and examples use.
func (g settingsGen) development() {
	d := g.Broker.Development
	g.f.Add(doc("What suites and examples use (compat.md section 6). None of it is a default of the broker."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		c.Id("DevelopmentHMACSecret").Op("=").Lit(d.HMACSecret)
		c.Id("DevelopmentIssuer").Op("=").Lit(d.Issuer)
		c.Id("DevelopmentAudience").Op("=").Lit(d.Audience)
		c.Id("DevelopmentSubject").Op("=").Lit(d.Subject)
		for _, f := range d.Families {
			c.Id("DevelopmentFamily" + g.names.exported(f.Name)).Op("=").Lit(f.Name).Comment(fmt.Sprintf("claim of family %d", f.Number))
		}
	})
	g.f.Line()
	g.f.Add(doc("DevelopmentFamilies returns the family of each value of the claim that names it."))
	g.f.Func().Id("DevelopmentFamilies").Params().Map(jen.String()).Uint32().Block(
		jen.Return(jen.Map(jen.String()).Uint32().ValuesFunc(func(v *jen.Group) {
			for _, f := range d.Families {
				v.Id("DevelopmentFamily" + g.names.exported(f.Name)).Op(":").Lit(int(f.Number))
			}
		})),
	)
	g.f.Line()
}
