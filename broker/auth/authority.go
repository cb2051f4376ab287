package auth

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/reload"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// Config is what an operator says about tokens. Keys are either one secret (HS256) or sets of public keys by issuer (RS256).
//
// Audiences, Families and names of claims that are left out are the defaults of their settings.
type Config struct {
	// HMACSecret is the secret itself; HMACSecretFile is a file that holds it, which is read again when it changes. A line break at its
	// end does not count.
	HMACSecret     []byte
	HMACSecretFile string
	// JWKS are the key sets by issuer: the path of a file, or a URL with https, or with http to a loopback address.
	JWKS map[string]string
	// Issuers are accepted in `iss` of tokens that the secret signs. Without one `iss` must be the empty text. With JWKS the
	// issuers are those of the key sets.
	Issuers []string
	// Audiences are accepted in `aud`.
	Audiences []string
	// Families is the highest family number.
	Families uint32
	// FamilyMap gives each value of the identity claim its family.
	FamilyMap map[string]uint32
	// Names of claims. One that has no default is not looked at when it is empty.
	FamilyClaim, OrganisationClaim, CustomClaim, PermissionsClaim, RoleClaim string
}

// withDefaults fills in what was left out as the settings do.
func (c Config) withDefaults() Config {
	if len(c.Audiences) == 0 {
		c.Audiences = strings.Split(settings.SettingAudiences.Default, ",")
	}
	c.Families = max(c.Families, 1)
	c.FamilyClaim = cmp.Or(c.FamilyClaim, settings.SettingFamilyClaim.Default)
	c.RoleClaim = cmp.Or(c.RoleClaim, settings.SettingRoleClaim.Default)
	return c
}

// Options are what an Authority needs. Config, Limits and Clock are required.
type Options struct {
	Config  Config
	Limits  bounds.Limits
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics *metrics.Auth
	// Reload counts what happens to key files.
	Reload *metrics.Reload
}

// Authority verifies tokens. It is safe for concurrent use.
type Authority struct {
	config    Config
	limits    bounds.Limits
	clock     clock.Clock
	log       *slog.Logger
	metrics   *metrics.Auth
	reload    *metrics.Reload
	audiences map[string]bool
	issuers   map[string]bool // of HMAC tokens
	secret    func() []byte   // nil with JWKS
	sets      map[string]*keySet
	shared    shared
}

// New loads the keys. Its error names the setting, and the file or URL, that is wrong. Key sets with a URL are fetched, because keys must
// be there before the first client is: who is refused for want of a key does not come back.
func New(o Options) (*Authority, error) {
	a := &Authority{config: o.Config.withDefaults(), limits: o.Limits, clock: o.Clock, log: o.Log, metrics: o.Metrics, reload: o.Reload}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.metrics == nil {
		a.metrics = metrics.NewAuth(nil)
	}
	if a.reload == nil {
		a.reload = metrics.NewReload(nil)
	}
	a.audiences, a.issuers = setOf(a.config.Audiences), setOf(a.config.Issuers)
	if len(a.issuers) == 0 {
		a.issuers[""] = true
	}
	if err := a.checkFamilies(); err != nil {
		return nil, err
	}
	if err := a.loadKeys(); err != nil {
		return nil, err
	}
	return a, nil
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// checkFamilies checks A-22.
func (a *Authority) checkFamilies() error {
	c := &a.config
	if int64(c.Families) > a.limits.FamiliesMax {
		return fmt.Errorf("families: %d is more than families_max %d", c.Families, a.limits.FamiliesMax)
	}
	if len(c.FamilyMap) == 0 {
		return errors.New("family_map: no identity has a family, so that every token would be refused")
	}
	for identity, family := range c.FamilyMap {
		if family < 1 || family > c.Families {
			return fmt.Errorf("family_map: family %d of %q is not from 1 to families %d", family, identity, c.Families)
		}
	}
	return nil
}

func (a *Authority) loadKeys() error {
	c := &a.config
	kinds := 0
	for _, given := range []bool{len(c.HMACSecret) > 0, c.HMACSecretFile != "", len(c.JWKS) > 0} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds == 0:
		return errors.New("tokens need hmac_secret, hmac_secret_file or jwks")
	case kinds > 1:
		return errors.New("only one of hmac_secret, hmac_secret_file and jwks can be given")
	case len(c.JWKS) > 0 && len(c.Issuers) > 0:
		return errors.New("issuers: the issuers of jwks are those of its key sets")
	case len(c.JWKS) > 0:
		return a.openKeySets()
	case c.HMACSecretFile != "":
		return a.openSecret()
	}
	secret := c.HMACSecret
	a.secret = func() []byte { return secret }
	a.warnOfShortSecret(secret)
	return nil
}

// Connect verifies the token of a CONNECT and returns what its session may do. The error is a *Refusal. It waits for nothing but
// at times for a file.
func (a *Authority) Connect(token []byte) (*Access, error) {
	access, reason := a.connect(token)
	if reason != "" {
		a.metrics.RefusalsTotal.WithLabelValues(string(reason)).Inc()
		return nil, &Refusal{reason}
	}
	a.metrics.AcceptsTotal.Inc()
	return access, nil
}

func (a *Authority) connect(token []byte) (*Access, Reason) {
	t, reason := a.Verify(token)
	if reason != "" {
		return nil, reason
	}
	family, ok := a.config.familyOf(t.Claims)
	if !ok {
		return nil, ReasonFamily
	}
	grants, reason := a.config.grantsOf(t.Claims, a.limits.PermissionsMax)
	if reason != "" {
		return nil, reason
	}
	return a.shared.access(family, grants), ""
}

// Verify checks everything of a token but family and permissions. The reason is "" when it is valid.
//
// The keys that the operator gave decide which algorithm a token must have; nothing in the token does, and no key or address that it names
// is looked at.
func (a *Authority) Verify(token []byte) (*Token, Reason) {
	t, reason := open(token, a.limits.TokenBytesMax, a.limits.TokenJSONDepthMax)
	if reason != "" {
		return nil, reason
	}
	if a.secret != nil {
		reason = a.verifySecret(t)
	} else {
		reason = a.verifyKey(t)
	}
	if reason == "" {
		reason = a.checkClaims(t.Claims, a.clock.Wall())
	}
	if reason != "" {
		return nil, reason
	}
	return t, ""
}

// verifySecret checks.
func (a *Authority) verifySecret(t *Token) Reason {
	switch algorithm, _ := text(t.Header, "alg"); {
	case algorithm != jwt.SigningMethodHS256.Name:
		return ReasonAlgorithm
	case jwt.SigningMethodHS256.Verify(t.signed, t.signature, a.secret()) != nil && !mutant.On("auth.signature-ignored"):
		return ReasonSignature
	}
	if reason := t.decodeClaims(a.limits.TokenJSONDepthMax); reason != "" {
		return reason
	}
	issuer, ok := text(t.Claims, "iss")
	if (!ok || !a.issuers[issuer]) && !mutant.On("auth.issuer-ignored") {
		return ReasonIssuer
	}
	return ""
}

// verifyKey checks A-12. The issuer says whose keys count, so the claims are decoded first.
func (a *Authority) verifyKey(t *Token) Reason {
	if algorithm, _ := text(t.Header, "alg"); algorithm != jwt.SigningMethodRS256.Name {
		return ReasonAlgorithm
	}
	if reason := t.decodeClaims(a.limits.TokenJSONDepthMax); reason != "" {
		return reason
	}
	issuer, ok := text(t.Claims, "iss")
	set := a.sets[issuer]
	if !ok || set == nil {
		return ReasonIssuer
	}
	key, known := set.find(t.Header)
	switch {
	case !known:
		return ReasonKey
	case jwt.SigningMethodRS256.Verify(t.signed, t.signature, key) != nil:
		return ReasonSignature
	}
	return ""
}

// checkClaims checks.
func (a *Authority) checkClaims(claims map[string]any, now time.Time) Reason {
	if reason := checkTime(claims, now); reason != "" {
		return reason
	}
	if !hasAudience(claims["aud"], a.audiences) && !mutant.On("auth.audience-ignored") {
		return ReasonAudience
	}
	if subject, _ := text(claims, "sub"); subject == "" {
		return ReasonSubject
	}
	return ""
}

// familyOf returns the family of the identity that a token names.
func (c *Config) familyOf(claims map[string]any) (uint32, bool) {
	identity, ok := text(claims, c.identityClaim(claims))
	family, known := c.FamilyMap[identity]
	if known && mutant.On("auth.family-ignored") {
		family = 1
	}
	return family, ok && known
}

// identityClaim is the name of the claim that names the identity.
func (c *Config) identityClaim(claims map[string]any) string {
	if _, present := claims[c.OrganisationClaim]; present && c.OrganisationClaim != "" {
		return c.OrganisationClaim
	}
	return c.FamilyClaim
}

// Identity returns the value that the family of these claims follows from, and the claim that it stands in. "": it stands in none.
func (c Config) Identity(claims map[string]any) (value, claim string) {
	c = c.withDefaults()
	claim = c.identityClaim(claims)
	value, _ = text(claims, claim)
	return value, claim
}

// Grants returns the permissions of these claims. The error is a *Refusal.
func (c Config) Grants(claims map[string]any, limits bounds.Limits) ([]Grant, error) {
	c = c.withDefaults()
	grants, reason := c.grantsOf(claims, limits.PermissionsMax)
	if reason != "" {
		return nil, &Refusal{reason}
	}
	return grants, nil
}

// openSecret reads the secret from its file.
func (a *Authority) openSecret() error {
	source, err := reload.Open(a.reloading(reload.KindHMACSecret), func(content [][]byte) ([]byte, error) {
		secret := bytes.TrimRight(content[0], "\r\n") // editors leave a line break
		if len(secret) == 0 {
			return nil, fmt.Errorf("%s holds no secret", a.config.HMACSecretFile)
		}
		a.warnOfShortSecret(secret)
		return secret, nil
	}, secretBytesMax, a.config.HMACSecretFile)
	if err != nil {
		return fmt.Errorf("hmac_secret_file: %w", err)
	}
	a.secret = source.Get
	return nil
}

// secretBytesMax bounds the file of a secret, which an operator writes.
const secretBytesMax = 64 << 10

// warnOfShortSecret says that a secret can be guessed: HS256 is as strong as 32 bytes (RFC 7518 section 3.2).
func (a *Authority) warnOfShortSecret(secret []byte) {
	if len(secret) < 32 {
		a.log.Warn("the token secret is shorter than 32 bytes: fit for development only")
	}
}

func (a *Authority) reloading(kind string) reload.Options {
	return reload.Options{Clock: a.clock, Every: fileCheck, Log: a.log, Kind: kind}.Counted(a.reload)
}

// Run fetches key sets again until ctx ends.
func (a *Authority) Run(ctx context.Context) error { return a.refreshKeySets(ctx) }
