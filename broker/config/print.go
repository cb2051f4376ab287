package config

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// Print writes the configuration in force as a configuration file. Secrets are not shown.
func (c *Config) Print(w io.Writer) error {
	out := bufio.NewWriter(w)
	if c.file != "" {
		fmt.Fprintf(out, "# read from %s\n", c.file)
	}
	for _, s := range settings.All {
		if from, ok := c.secrets[s.Name]; ok {
			fmt.Fprintf(out, "# %s: (redacted) # %s\n", s.Name, from)
		}
	}
	for _, l := range settings.Listeners {
		fmt.Fprintf(out, "%s: %s\n", l.Name, strconv.Quote(c.values[l.Name]))
	}
	for _, s := range settings.All {
		if s.Name == settings.SettingConfig.Name || s.Type == "limits" || s.Type == typeSecret {
			continue
		}
		if text := printed(s, c.values[s.Name]); text != "" {
			fmt.Fprintf(out, "%s: %s\n", s.Name, text)
		}
	}
	c.printListeners(out)
	fmt.Fprintf(out, "%s:\n", settings.SettingLimits.Name)
	for _, b := range bounds.All {
		if n, ok := c.Limits.Get(b.Name); ok && b.OperatorMayChange {
			fmt.Fprintf(out, "  %s: %d\n", b.Name, n)
		}
	}
	return out.Flush()
}

// printed returns a value as YAML; empty when there is none.
func printed(s settings.Setting, value string) string {
	switch s.Type {
	case "bool":
		return strconv.FormatBool(value == "true" || value == "1")
	case typeList:
		return "[" + value + "]"
	case typeTextMap, typeNumberMap:
		if value == "" {
			return ""
		}
		return "{" + value + "}"
	case "number":
		return value
	default:
		if value == "" {
			return ""
		}
		return strconv.Quote(value)
	}
}

// printListeners writes the listeners of the list in the file.
func (c *Config) printListeners(out io.Writer) {
	first := true
	for _, l := range c.Listeners {
		if slices.ContainsFunc(settings.Listeners, func(d settings.Listener) bool { return d.Name == l.Name }) {
			continue
		}
		if first {
			fmt.Fprintf(out, "%s:\n", keyListeners)
			first = false
		}
		auth := ""
		if l.Auth != "" {
			auth = ", auth: " + l.Auth
		}
		fmt.Fprintf(out, "  - {transport: %s, address: %q%s, hello: %q, tls: %s}\n", l.Transport, l.Address(), auth, helloText(l.Hello), l.TLS.text())
	}
}

func helloText(h session.Hello) string {
	switch h.Mode {
	case session.HelloOff:
		return "off"
	case session.HelloDelayed:
		return fmt.Sprintf("delayed(%d)", h.Delay.Milliseconds())
	default:
		return "immediate"
	}
}
