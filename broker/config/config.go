// Package config reads what an operator says to fitzd: flags beat environment variables, which beat the configuration file, which
// beats the defaults of the specification. All mistakes are found in one run, each with the place it stands at.
package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// Transports of listeners.
const (
	TransportTCP       = "tcp"
	TransportWebSocket = "websocket"
	TransportAdmin     = "admin"
)

// AddressOff is the address that switches a default listener off.
const AddressOff = "off"

// Listener is one address to listen at.
type Listener struct {
	Name      string // as in the addresses file: tcp, http, admin, or that of the listener list
	Transport string
	Host      string // localhost, an IP address, or empty for all interfaces
	Port      uint16 // 0 picks a free one
	// Auth is anonymous or token; empty for an admin listener. AuthFrom is where it was given.
	Auth, AuthFrom string
	Hello          session.Hello
	TLS            *TLS // nil: none
	// From is where the address was given: a flag, an environment name, file:line, or "default".
	From string
	// Change tells how to choose another address: a flag or a place in the file.
	Change string
}

// Address returns host and port in the form that is listened at.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))) }

// Loopback reports whether only this machine can reach the listener.
func (l Listener) Loopback() bool {
	if l.Host == localhost {
		return true
	}
	ip, err := netip.ParseAddr(l.Host)
	return err == nil && ip.Unmap().IsLoopback()
}

const localhost = "localhost"

// Config is a complete and valid configuration.
type Config struct {
	Listeners         []Listener
	Limits            bounds.Limits
	Origins           []string // as browsers send them (W-24)
	InsecureAnonymous bool
	// Auth is how tokens are checked. AuthFrom is where their keys were given; empty when there are none.
	Auth     auth.Config
	AuthFrom string
	// AdminToken, or the content of AdminTokenFile, is what the admin interface asks for; both are empty when it asks for nothing.
	AdminToken, AdminTokenFile string
	AdminTokenFrom             string
	AddressesFile              string // empty: none
	LogLevel                   slog.Level
	LogJSON                    bool
	// Warnings are things that have no effect in this build, one line each.
	Warnings []string

	file    string
	values  map[string]string // settings as text, by name, for Print
	secrets map[string]string // places of secrets that were given, by setting
}

// Action is what a command line asks for.
type Action uint8

// Actions of fitzd.
const (
	Serve   Action = iota
	Help           // what was asked for was printed: the help text, a manual page, a completion script
	Version        // print the version
	Check          // the configuration is right; do not listen
	Print          // print the configuration; do not listen
	Health         // ask the broker that runs with this configuration for its health
)

// Problem is one mistake: where it stands and what is wrong.
type Problem struct{ Where, What string }

func (p Problem) String() string {
	if p.Where == "" {
		return p.What
	}
	return p.Where + ": " + p.What
}

// Problems are all mistakes of a configuration. They are an error.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// builder turns settings of all sources into a configuration.
type builder struct {
	flags    *flags
	env      func(string) string
	file     *file
	config   *Config
	problems Problems
}

func (b *builder) problem(where, format string, args ...any) {
	b.problems = append(b.problems, Problem{where, fmt.Sprintf(format, args...)})
}

// given is a setting as it was found, with the place.
type given struct {
	text  string
	list  []string // for lists and maps
	pairs []pair   // for maps
	from  string
}

// pair is one entry of a map.
type pair struct{ name, value, from string }

// fromDefault is the place of what nobody gave.
const fromDefault = "default"

// lookup returns the value of a setting from the strongest source that has one.
func (b *builder) lookup(s settings.Setting) (given, bool) {
	v, ok := b.find(s.Flag, s.Env, s.Aliases, s.Name)
	if ok && v.pairs == nil && (s.Type == typeTextMap || s.Type == typeNumberMap) {
		v.pairs = pairsIn(v.list, v.from, s.Type == typeNumberMap)
	}
	return v, ok
}

func (b *builder) find(flag, env string, aliases []string, key string) (given, bool) {
	if v, ok := b.flags.values[flag]; ok {
		return given{text: strings.Join(v, ","), list: v, from: "--" + flag}, true
	}
	for _, name := range append([]string{env}, aliases...) {
		if v := b.env(name); v != "" {
			return given{text: v, list: splitList(v), from: name}, true
		}
	}
	if v, ok := b.file.values[key]; ok {
		return v, true
	}
	return given{}, false
}

// pairsIn splits NAME=VALUE at the first equals sign, or the last one where values are numbers. An item without one is a pair without a
// name.
func pairsIn(items []string, from string, numbers bool) []pair {
	pairs := make([]pair, 0, len(items))
	for _, item := range items {
		at := strings.IndexByte(item, '=')
		if numbers {
			at = strings.LastIndexByte(item, '=')
		}
		pairs = append(pairs, pair{strings.TrimSpace(item[:max(at, 0)]), strings.TrimSpace(item[at+1:]), from})
	}
	return pairs
}

// pairsOf returns the entries of a map. Mistakes are reported without the text of the entry, which may hold a secret of a URL.
func (b *builder) pairsOf(s settings.Setting) []pair {
	v, ok := b.lookup(s)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	var right []pair
	var texts []string
	for i, p := range v.pairs {
		switch {
		case p.name == "":
			b.problem(p.from, "%s: entry %d is not NAME=VALUE", s.Name, i+1)
			continue
		case seen[p.name]:
			b.problem(p.from, "%s: %q stands twice", s.Name, p.name)
			continue
		}
		seen[p.name] = true
		right = append(right, p)
		texts = append(texts, strconv.Quote(p.name)+": "+mapValue(s, p.value))
	}
	slices.Sort(texts)
	b.config.values[s.Name] = strings.Join(texts, ", ")
	return right
}

// mapValue returns the value of an entry as YAML.
func mapValue(s settings.Setting, value string) string {
	if s.Type == typeNumberMap {
		return value
	}
	return strconv.Quote(value)
}

// splitList splits a list of an environment variable at commas.
func splitList(text string) []string {
	var items []string
	for _, item := range strings.Split(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// setting returns the text of a setting, its default when nobody gave one.
func (b *builder) setting(s settings.Setting) given {
	v, ok := b.lookup(s)
	if !ok {
		v = given{text: s.Default, list: splitList(s.Default), from: fromDefault}
	}
	b.config.values[s.Name] = v.text
	if s.Type == typeList {
		b.config.values[s.Name] = quoted(v.list)
	}
	return v
}

// quoted returns texts as the items of a YAML list.
func quoted(items []string) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = strconv.Quote(item)
	}
	return strings.Join(texts, ", ")
}

// secret is setting for a text that is never shown.
func (b *builder) secret(s settings.Setting) given {
	v, ok := b.lookup(s)
	if ok {
		b.config.secrets[s.Name] = v.from
	}
	return v
}

func (b *builder) enum(s settings.Setting) string {
	v := b.setting(s)
	if !slices.Contains(s.Values, v.text) {
		b.problem(v.from, "%s %q is not one of %s", s.Name, v.text, strings.Join(s.Values, ", "))
		return s.Default
	}
	return v.text
}

func (b *builder) boolean(s settings.Setting) bool {
	v := b.setting(s)
	switch v.text {
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	b.problem(v.from, "%s %q is not true or false", s.Name, v.text)
	return false
}

// build fills the configuration.
func (b *builder) build() {
	c := b.config
	hello := b.hello(b.setting(settings.SettingHello))
	c.InsecureAnonymous = b.boolean(settings.SettingInsecureAnonymous)
	c.AddressesFile = b.setting(settings.SettingAddressesFile).text
	c.LogJSON = b.enum(settings.SettingLogFormat) == "json"
	if err := c.LogLevel.UnmarshalText([]byte(b.enum(settings.SettingLogLevel))); err != nil {
		b.problem(settings.SettingLogLevel.Name, "%v", err)
	}
	b.origins()
	b.aliases()
	b.limits()
	b.tokens()
	b.adminToken()
	standard := Listener{Hello: hello, TLS: b.defaultTLS()}
	mode := b.defaultAuth()
	standard.Auth, standard.AuthFrom = mode.text, mode.from
	for _, l := range settings.Listeners {
		b.defaultListener(l, standard)
	}
	for _, l := range b.file.listeners {
		b.fileListener(l, standard)
	}
	b.checkTokens()
	b.checkListeners()
}

func (b *builder) origins() {
	v := b.setting(settings.SettingWebsocketOrigins)
	for _, text := range v.list {
		origin, err := normalizeOrigin(text)
		if err != nil {
			b.problem(v.from, "%s: %v", settings.SettingWebsocketOrigins.Name, err)
			continue
		}
		b.config.Origins = append(b.config.Origins, origin)
	}
	b.config.values[settings.SettingWebsocketOrigins.Name] = quoted(b.config.Origins)
}

// hello reads immediate, delayed(ms) or off (compat.md section 2).
func (b *builder) hello(v given) session.Hello {
	hello, err := parseHello(v.text)
	if err != nil {
		b.problem(v.from, "%v", err)
	}
	return hello
}

// aliases looks at environment names of the public broker that ask for something this build does not have.
func (b *builder) aliases() {
	for _, a := range settings.Aliases {
		v := b.env(a.Name)
		if v == "" {
			continue
		}
		switch {
		case a.WaitsFor == "":
		case a.Refuse != "" && strings.EqualFold(v, a.Refuse):
			b.problem(a.Name, "this build does not have %s", a.WaitsFor)
		default:
			b.config.Warnings = append(b.config.Warnings, fmt.Sprintf("%s has no effect: this build does not have %s", a.Name, a.WaitsFor))
		}
	}
}

// alias returns the value of the environment name that sets something.
func (b *builder) alias(sets string) (value, name string) {
	for _, a := range settings.Aliases {
		if a.Sets == sets {
			return b.env(a.Name), a.Name
		}
	}
	return "", ""
}

// Parts of addresses that aliases set.
const (
	aliasBind     = "bind"
	aliasHTTPPort = "http_port"
	aliasTCPPort  = "tcp_port"
)

// portAlias is the alias for the port of a default listener; the admin listener has none and takes no foreign host either.
var portAlias = map[string]string{
	settings.ListenerHTTP.Name: aliasHTTPPort,
	settings.ListenerTCP.Name:  aliasTCPPort,
}

// defaultListener adds a listener of the specification. standard says what listeners are that do not say otherwise.
func (b *builder) defaultListener(l settings.Listener, standard Listener) {
	v, ok := b.find(l.Flag, l.Env, nil, l.Name)
	if !ok {
		v = given{text: l.Address, from: fromDefault}
	}
	if portName := portAlias[l.Name]; portName != "" && (!ok || v.from != "--"+l.Flag && v.from != l.Env) {
		v = b.withAliases(v, ok, portName)
	}
	b.config.values[l.Name] = v.text
	if v.text == AddressOff {
		return
	}
	listener := standard
	if l.Transport == TransportAdmin {
		listener = Listener{Hello: standard.Hello}
	}
	listener.Name, listener.Transport, listener.From, listener.Change = l.Name, l.Transport, v.from, "--"+l.Flag
	b.add(listener, v.text)
}

// withAliases applies the aliases for host and port to an address of the file or the default. The host alias counts for
// addresses that nobody gave.
func (b *builder) withAliases(v given, inFile bool, portName string) given {
	host, port, err := net.SplitHostPort(v.text)
	if err != nil {
		return v
	}
	if bind, name := b.alias(aliasBind); bind != "" && !inFile {
		host, v.from = strings.Trim(bind, "[]"), name
	}
	if p, name := b.alias(portName); p != "" {
		port, v.from = p, name
	}
	v.text = net.JoinHostPort(host, port)
	return v
}

// fileListener adds a listener of the file. standard says what it is where it does not say otherwise.
func (b *builder) fileListener(l fileListener, standard Listener) {
	where := l.from
	switch {
	case l.Transport.text != TransportTCP && l.Transport.text != TransportWebSocket && l.Transport.text != TransportAdmin:
		b.problem(orPlace(l.Transport.from, where), "transport %q is not tcp, websocket or admin", l.Transport.text)
		return
	case l.Address.text == "":
		b.problem(where, "listener without an address")
		return
	}
	listener := standard
	listener.Name, listener.Transport, listener.From, listener.Change = l.name, l.Transport.text, l.Address.from, l.Address.from
	listener.TLS = b.listenerTLS(l, standard.TLS)
	if l.Hello.text != "" {
		listener.Hello = b.hello(l.Hello)
	}
	switch isAdmin := l.Transport.text == TransportAdmin; {
	case isAdmin && l.Auth.text != "":
		b.problem(l.Auth.from, "%s is for clients; an admin listener asks for %s", settings.SettingAuth.Name, settings.SettingAdminToken.Name)
	case isAdmin:
		listener.Auth, listener.AuthFrom = "", ""
	case l.Auth.text == AuthAnonymous || l.Auth.text == AuthToken:
		listener.Auth, listener.AuthFrom = l.Auth.text, l.Auth.from
	case l.Auth.text != "":
		b.problem(l.Auth.from, "auth %q is not anonymous or token", l.Auth.text)
	}
	b.add(listener, l.Address.text)
}

func orPlace(place, otherwise string) string {
	if place != "" {
		return place
	}
	return otherwise
}

// add parses the address of a listener and keeps it.
func (b *builder) add(l Listener, address string) {
	host, port, err := parseAddress(address)
	if err != nil {
		b.problem(l.From, "%v", err)
		return
	}
	l.Host, l.Port = host, port
	b.config.Listeners = append(b.config.Listeners, l)
}

// parseAddress reads HOST:PORT. The host is localhost, an IP address, or empty for all interfaces.
func parseAddress(text string) (host string, port uint16, err error) {
	host, number, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, fmt.Errorf("address %q is not HOST:PORT", text)
	}
	p, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: port %q is not a number from 0 to 65535", text, number)
	}
	if strings.EqualFold(host, localhost) {
		host = localhost
	} else if _, err := netip.ParseAddr(host); host != "" && err != nil {
		return "", 0, fmt.Errorf("address %q: host %q is not localhost or an IP address", text, host)
	}
	return host, uint16(p), nil
}

// checkListeners looks at all listeners together.
func (b *builder) checkListeners() {
	clients := 0
	seen := map[string]Listener{}
	for _, l := range b.config.Listeners {
		if l.Transport != TransportAdmin {
			clients++
		}
		switch {
		case l.Loopback():
		case l.Transport == TransportAdmin && b.config.AdminToken == "" && b.config.AdminTokenFile == "":
			b.problem(l.From, "the admin listener %s can be reached from other machines; use a loopback address or %s",
				l.Address(), settings.SettingAdminTokenFile.Name)
		case l.Auth == AuthAnonymous && !b.config.InsecureAnonymous:
			b.problem(l.From, "anonymous listener %s can be reached from other machines; use a loopback address or --%s",
				l.Address(), settings.SettingInsecureAnonymous.Flag)
		}
		if other, twice := seen[l.Address()]; twice && l.Port != 0 {
			b.problem(l.From, "address %s is also that of listener %s (%s)", l.Address(), other.Name, other.From)
		}
		seen[l.Address()] = l
	}
	if clients == 0 && len(b.problems) == 0 {
		b.problem("", "no listener for clients is left: all of them are off")
	}
}

// Prefixed returns the lines of an error, each behind prefix.
func Prefixed(prefix string, err error) string {
	return prefix + strings.ReplaceAll(err.Error(), "\n", "\n"+prefix)
}
