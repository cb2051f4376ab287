package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/internal/devtoken"
	"github.com/fitzwire/fitz/tools/internal/display"
)

// secretEnv is the variable that holds a secret, as the broker reads it. There is no flag: everybody on the machine sees arguments.
var secretEnv = settings.SettingHmacSecret.Env

// secretMax bounds the file of a secret.
const secretMax = 64 << 10

type mintCmd struct {
	SecretFile string        `name:"secret-file" placeholder:"PATH" help:"File that holds the secret; a line break at its end does not count. Without it the secret is that of the environment variable ${token_secret_env}."`
	Family     string        `name:"family" required:"" placeholder:"NAME" help:"Value of the claim that the broker finds the family by."`
	Permission []string      `name:"permission" required:"" sep:"none" placeholder:"PATTERN#ACCESS" help:"What the token permits; may be given several times. ACCESS is read, write or *."`
	Subject    string        `name:"subject" default:"${token_subject}" placeholder:"NAME" help:"Who the token is for."`
	Issuer     string        `name:"issuer" default:"" placeholder:"NAME" help:"Who issues it. The broker wants the empty text where no issuer is configured."`
	Audience   []string      `name:"audience" default:"${token_audience}" placeholder:"NAME" help:"Who it is shown to."`
	TTL        time.Duration `name:"ttl" default:"1h" help:"How long it is valid, in whole seconds."`
}

// Help is the long help text.
func (*mintCmd) Help() string {
	return `The token is signed with HS256. It is for development and tests: in production an identity provider makes tokens.`
}

// Run prints a token and nothing else.
func (c *mintCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	secret, err := a.secret(c.SecretFile)
	if err != nil {
		return err
	}
	if secret == nil {
		return usage("no secret: give --secret-file or set %s", secretEnv)
	}
	token, err := devtoken.Mint(secret, devtoken.Claims{
		Issuer: c.Issuer, Subject: c.Subject, Audience: c.Audience, Expires: time.Now().Add(c.TTL), Family: c.Family, Permissions: c.Permission})
	if err != nil {
		return err
	}
	if int64(len(token)) > bounds.Default().TokenBytesMax {
		return usage("the token would have %d bytes, a broker takes %d", len(token), bounds.Default().TokenBytesMax)
	}
	if a.json {
		return a.printJSON(a.stdout, map[string]string{"token": token})
	}
	return a.print(token)
}

// check refuses what every broker would refuse.
func (c *mintCmd) check() error {
	switch {
	case c.TTL < time.Second || c.TTL%time.Second != 0:
		return usage("--ttl is %v, not a number of whole seconds", c.TTL)
	case c.Family == "":
		return usage("--family is empty")
	case c.Subject == "":
		return usage("--subject is empty")
	case int64(len(c.Permission)) > bounds.Default().PermissionsMax:
		return usage("%d permissions, a broker takes %d", len(c.Permission), bounds.Default().PermissionsMax)
	}
	for _, entry := range c.Permission {
		if _, ok := auth.ParseGrant(entry); !ok {
			return usage("--permission %s is not a pattern with #read, #write or #* behind it", strconv.Quote(entry))
		}
	}
	return nil
}

// secret returns the secret of a file, or of the environment when no file is named; nil when there is none.
func (a *app) secret(path string) ([]byte, error) {
	if path == "" {
		for _, variable := range a.environ {
			if value, found := strings.CutPrefix(variable, secretEnv+"="); found && value != "" {
				return []byte(value), nil
			}
		}
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, usage("--secret-file: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	content, err := io.ReadAll(io.LimitReader(file, secretMax+1))
	if err != nil {
		return nil, usage("--secret-file: %w", err)
	}
	content = bytes.TrimRight(content, "\r\n")
	switch {
	case len(content) == 0:
		return nil, usage("--secret-file: %s holds no secret", path)
	case len(content) > secretMax:
		return nil, usage("--secret-file: %s holds more than %d bytes", path, secretMax)
	}
	return content, nil
}

type inspectCmd struct {
	Token      string   `arg:"" optional:"" default:"-" help:"The token, or - to read it from standard input."`
	SecretFile string   `name:"secret-file" placeholder:"PATH" help:"Verify the token with the secret in this file, as a broker does."`
	Issuer     []string `name:"issuer" placeholder:"NAME" help:"Issuers that the broker accepts; without one the issuer must be the empty text."`
	Audience   []string `name:"audience" placeholder:"NAME" help:"Audiences that the broker accepts (default ${token_audiences})."`

	FamilyClaim       string `name:"family-claim" placeholder:"NAME" help:"Claim that the broker finds the family by (default ${token_family_claim})."`
	OrganisationClaim string `name:"organisation-claim" placeholder:"NAME" help:"Claim that comes before it where a token has it."`
	CustomClaim       string `name:"custom-claim" placeholder:"NAME" help:"Claim object that holds permissions."`
	PermissionsClaim  string `name:"permissions-claim" placeholder:"NAME" help:"Claim that holds permissions."`
	RoleClaim         string `name:"role-claim" placeholder:"NAME" help:"Claim that holds roles (default ${token_role_claim})."`
}

// Help is the long help text.
func (*inspectCmd) Help() string {
	return `Without --secret-file nothing of the token is verified: anybody may have written it. With it the exit code is 1 when a broker with these
settings would refuse the token. Neither the signature nor the secret is printed.`
}

// inspection is what there is to say about a token.
type inspection struct {
	// Verified: signature, issuer, audience, subject and times were checked and are right. Refused is why a broker refuses the token, as
	// far as it was checked.
	Verified    bool         `json:"verified"`
	Refused     string       `json:"refused,omitempty"`
	Algorithm   string       `json:"algorithm"`
	KeyID       string       `json:"key_id,omitempty"`
	Issuer      any          `json:"issuer"`
	Subject     any          `json:"subject"`
	Audience    any          `json:"audience"`
	Family      string       `json:"family"`
	FamilyClaim string       `json:"family_claim"`
	NotBefore   string       `json:"not_before,omitempty"`
	Expires     string       `json:"expires,omitempty"`
	ExpiresIn   string       `json:"expires_in,omitempty"`
	Permissions []permission `json:"permissions"`
}

// permission is one entry and what it gives.
type permission struct {
	Pattern string   `json:"pattern"`
	Domain  string   `json:"domain"`
	Grants  []string `json:"grants"` // empty: the pattern matches no route of its domain
}

// Run shows a token.
func (c *inspectCmd) Run(a *app) error {
	text, err := c.read(a)
	if err != nil {
		return err
	}
	limits := bounds.Default()
	token, err := auth.Decode(text, limits.TokenBytesMax, limits.TokenJSONDepthMax)
	if err != nil {
		return usage("%w: a token is three parts of base64url with dots between them, two of which are JSON objects without duplicate names", err)
	}
	now := time.Now()
	shown := c.look(token, now)
	if c.SecretFile != "" {
		if err := c.verify(a, text, &shown); err != nil {
			return err
		}
	}
	if err := a.showInspection(shown); err != nil {
		return err
	}
	if c.SecretFile != "" && shown.Refused != "" {
		return ended(exitFailure)
	}
	return nil
}

// read returns the token of the argument or of standard input.
func (c *inspectCmd) read(a *app) ([]byte, error) {
	if c.Token != "-" {
		return []byte(c.Token), nil
	}
	most := bounds.Default().TokenBytesMax
	text, err := io.ReadAll(io.LimitReader(a.stdin, most+2)) // a line break may follow
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(text, "\r\n"), nil
}

// config is that of a broker with the settings that were given.
func (c *inspectCmd) config() auth.Config {
	return auth.Config{
		Issuers: c.Issuer, Audiences: c.Audience, FamilyClaim: c.FamilyClaim, OrganisationClaim: c.OrganisationClaim,
		CustomClaim: c.CustomClaim, PermissionsClaim: c.PermissionsClaim, RoleClaim: c.RoleClaim}
}

// look finds out what a token says.
func (c *inspectCmd) look(token *auth.Token, now time.Time) inspection {
	shown := inspection{Issuer: token.Claims["iss"], Subject: token.Claims["sub"], Audience: token.Claims["aud"], Permissions: []permission{}}
	shown.Algorithm, _ = token.Header["alg"].(string)
	shown.KeyID, _ = token.Header["kid"].(string)
	shown.Family, shown.FamilyClaim = c.config().Identity(token.Claims)
	if begins, ok := instant(token.Claims["nbf"]); ok {
		shown.NotBefore = begins.Format(time.RFC3339)
	}
	if expires, ok := instant(token.Claims["exp"]); ok {
		shown.Expires = expires.Format(time.RFC3339)
		shown.ExpiresIn = expires.Sub(now).Truncate(time.Second).String()
	}
	grants, err := c.config().Grants(token.Claims, bounds.Default())
	if err != nil {
		shown.Refused = err.Error()
	}
	if shown.Family == "" {
		shown.Refused = string(auth.ReasonFamily)
	}
	for _, g := range grants {
		p := permission{Pattern: g.Pattern(), Domain: g.Scheme(), Grants: []string{}}
		for _, level := range g.Levels() {
			if !g.Empty() {
				p.Grants = append(p.Grants, level.String())
			}
		}
		shown.Permissions = append(shown.Permissions, p)
	}
	return shown
}

// instant is the time of a claim in whole seconds.
func instant(claim any) (time.Time, bool) {
	number, ok := claim.(json.Number)
	if !ok {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(number.String(), 10, 64)
	t := time.Unix(seconds, 0).UTC()
	return t, err == nil && t.Year() >= 1 && t.Year() <= 9999
}

// verify checks a token as a broker does that knows its family.
func (c *inspectCmd) verify(a *app, text []byte, shown *inspection) error {
	secret, err := a.secret(c.SecretFile)
	if err != nil {
		return err
	}
	config := c.config()
	config.HMACSecret, config.FamilyMap = secret, map[string]uint32{shown.Family: 1}
	authority, err := auth.New(auth.Options{Config: config, Limits: bounds.Default(), Clock: clock.System()})
	if err != nil {
		return err
	}
	_, reason := authority.Verify(text)
	shown.Verified = reason == ""
	if _, err := authority.Connect(text); err != nil && reason == "" {
		reason = refusalOf(err)
	}
	if reason != "" {
		shown.Refused = string(reason)
	}
	return nil
}

func refusalOf(err error) auth.Reason {
	var refusal *auth.Refusal
	if errors.As(err, &refusal) {
		return refusal.Reason
	}
	return ""
}

func (a *app) showInspection(shown inspection) error {
	if a.json {
		return a.printJSON(a.stdout, shown)
	}
	return a.print(strings.Join(shown.lines(), "\n"))
}

// lines are what there is to say, for people.
func (i inspection) lines() []string {
	verdict := "not verified: anybody may have written this token"
	if i.Verified {
		verdict = "verified: signature, issuer, audience, subject and times are right"
	}
	lines := []string{verdict}
	add := func(name, value string) { lines = append(lines, fmt.Sprintf("%-11s %s", name, value)) }
	if i.Refused != "" {
		add("refused", i.Refused)
	}
	add("algorithm", display.Text(i.Algorithm))
	if i.KeyID != "" {
		add("key id", display.Text(i.KeyID))
	}
	add("issuer", shownClaim(i.Issuer))
	add("subject", shownClaim(i.Subject))
	add("audience", shownClaim(i.Audience))
	add("family", fmt.Sprintf("%s (claim %s)", shownClaim(i.Family), display.Text(i.FamilyClaim)))
	if i.NotBefore != "" {
		add("not before", i.NotBefore)
	}
	add("expires", i.expiry())
	for _, p := range i.Permissions {
		gives := "grants " + strings.Join(p.Grants, ", ")
		if len(p.Grants) == 0 {
			gives = "grants nothing: no route of " + p.Domain + " matches"
		}
		add("permission", display.Text(p.Pattern)+" "+gives)
	}
	return lines
}

func (i inspection) expiry() string {
	if i.Expires == "" {
		return "never, or at no time that can be read"
	}
	if ago, past := strings.CutPrefix(i.ExpiresIn, "-"); past || i.ExpiresIn == "0s" {
		return fmt.Sprintf("%s (%s ago)", i.Expires, ago)
	}
	return fmt.Sprintf("%s (in %s)", i.Expires, i.ExpiresIn)
}

// shownClaim is a claim as JSON, escaped; missing when it is not there.
func shownClaim(claim any) string {
	if claim == nil {
		return "missing"
	}
	text, err := json.Marshal(claim)
	if err != nil {
		return "missing"
	}
	return display.Text(string(text))
}

// tokenVars are what the help texts of the token commands name.
func tokenVars() kong.Vars {
	return kong.Vars{
		"token_secret_env": secretEnv,
		"token_subject":    settings.DevelopmentSubject, "token_audience": settings.DevelopmentAudience,
		"token_audiences":    strings.ReplaceAll(settings.SettingAudiences.Default, ",", " and "),
		"token_family_claim": settings.SettingFamilyClaim.Default, "token_role_claim": settings.SettingRoleClaim.Default,
	}
}
