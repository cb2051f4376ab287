package config

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/internal/cliref"
)

// flags are the flags that were given, by name.
type flags struct {
	values map[string][]string
	action Action
}

// Flags that are no settings.
const (
	flagVersion = "version"
	flagCheck   = "check-config"
	flagPrint   = "print-config"
)

// Load reads the command line without the program name, the environment and the file that they name. Help goes to out. The error
// is of type Problems; then the configuration is nil.
func Load(args []string, env func(name string) string, out io.Writer) (*Config, Action, error) {
	given, err := parseFlags(args, out)
	if err != nil {
		return nil, Serve, Problems{{"", err.Error()}}
	}
	if given.action == Help || given.action == Version {
		return nil, given.action, nil
	}
	b := &builder{flags: given, env: env, config: &Config{Limits: bounds.Default(), values: map[string]string{}, secrets: map[string]string{}}}
	b.file = &file{}
	path, _ := b.lookup(settings.SettingConfig)
	b.config.file = path.text
	b.file = readFile(path.text, &b.problems)
	b.build()
	if len(b.problems) > 0 {
		return nil, given.action, b.problems
	}
	return b.config, given.action, nil
}

// parseFlags makes a command line of the settings table and parses args with it.
func parseFlags(args []string, out io.Writer) (*flags, error) {
	line := reflect.New(commandLine())
	helped := false
	parser, err := kong.New(line.Interface(),
		kong.Name(programName),
		kong.Description("The lease broker. Flags beat environment variables, which beat the configuration file."),
		kong.Writers(out, out),
		kong.Exit(func(int) { helped = true }),
		kong.Vars{"shells": cliref.Shells},
	)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(args)
	if helped {
		return &flags{action: Help}, nil
	}
	if err != nil {
		return nil, err
	}
	action, err := line.Elem().FieldByName(commandsField).Addr().Interface().(*commands).perform(parser, parsed.Command(), out)
	if err != nil {
		return nil, err
	}
	return collect(line.Elem(), action)
}

// commandLine returns a struct type with one field for each flag, as kong wants it.
func commandLine() reflect.Type {
	text, list, boolean := reflect.TypeFor[*string](), reflect.TypeFor[[]string](), reflect.TypeFor[*bool]()
	var fields []reflect.StructField
	add := func(typ reflect.Type, flag, help, placeholder string, more ...string) {
		tag := fmt.Sprintf("name:%q help:%q ", flag, help)
		if placeholder != "" {
			tag += fmt.Sprintf("placeholder:%q ", placeholder)
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("Flag%d", len(fields)), Type: typ,
			Tag: reflect.StructTag(tag + strings.Join(more, " "))})
	}
	for _, l := range settings.Listeners {
		add(text, l.Flag, fmt.Sprintf("%s Default: %s; %s for none. [$%s]", l.Doc, l.Address, AddressOff, l.Env), "HOST:PORT")
	}
	for _, s := range settings.All {
		if s.Flag == "" {
			continue // a secret
		}
		help := s.Doc
		if s.Default != "" {
			help += " Default: " + s.Default + "."
		}
		help += " [$" + s.Env + "]"
		switch s.Type {
		case typeList:
			add(list, s.Flag, help, strings.ToUpper(s.Type), `sep:"none"`)
		case typeTextMap:
			add(list, s.Flag, help, "NAME=TEXT", `sep:"none"`)
		case typeNumberMap:
			add(list, s.Flag, help, "NAME=NUMBER", `sep:"none"`)
		case "limits":
			add(list, s.Flag, help, "NAME=VALUE", `sep:"none"`)
		case "bool":
			add(boolean, s.Flag, help, "")
		default:
			add(text, s.Flag, help, strings.ToUpper(s.Type), completing(s))
		}
	}
	add(boolean, flagCheck, "Check the configuration and exit.", "")
	add(boolean, flagPrint, "Print the configuration in force, without secrets, and exit.", "")
	add(boolean, flagVersion, "Print version, commit and fingerprint of the specification, and exit.", "")
	fields = append(fields, reflect.StructField{Name: commandsField, Type: reflect.TypeFor[commands](), Tag: `embed:""`})
	return reflect.StructOf(fields)
}

// collect reads the parsed command line back. action is what its command asks for, which is stronger than flags that ask for something.
func collect(line reflect.Value, action Action) (*flags, error) {
	f := &flags{values: map[string][]string{}, action: action}
	asked := map[string]bool{}
	for i := range line.NumField() {
		name := line.Type().Field(i).Tag.Get("name")
		switch v := line.Field(i).Interface().(type) {
		case *string:
			if v != nil {
				f.values[name] = []string{*v}
			}
		case []string:
			if len(v) > 0 {
				f.values[name] = v
			}
		case *bool:
			if v != nil {
				asked[name] = *v
				f.values[name] = []string{strconv.FormatBool(*v)}
			}
		}
	}
	switch {
	case action != Serve:
	case asked[flagVersion]:
		f.action = Version
	case asked[flagPrint]:
		f.action = Print
	case asked[flagCheck]:
		f.action = Check
	}
	for _, s := range settings.All {
		if v := f.values[s.Flag]; slices.Contains(v, "") {
			return nil, fmt.Errorf("--%s needs a value", s.Flag)
		}
	}
	return f, nil
}
