package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// Ways of authentication of a listener.
const (
	AuthAnonymous = "anonymous"
	AuthToken     = "token"
)

// aliasAuthRequired is the alias that asks for tokens with true and false.
const aliasAuthRequired = "auth_required"

// defaultAuth is what listeners ask for that do not say it themselves, with the place.
func (b *builder) defaultAuth() given {
	s := settings.SettingAuth
	mode := b.enum(s)
	v, ok := b.lookup(s)
	if !ok {
		v.from = fromDefault
	}
	v.text = mode
	if ok && (v.from == "--"+s.Flag || v.from == s.Env) {
		return v
	}
	required, name := b.alias(aliasAuthRequired)
	switch strings.ToLower(required) {
	case "":
		return v
	case "true", "1":
		v = given{text: AuthToken, from: name}
	case "false", "0":
		v = given{text: AuthAnonymous, from: name}
	default:
		b.problem(name, "%q is not true or false", required)
	}
	b.config.values[s.Name] = v.text
	return v
}

// tokens reads what tokens are checked with. What a token listener cannot do without is checked when all listeners are known.
func (b *builder) tokens() {
	c := &b.config.Auth
	*c = auth.Config{
		HMACSecret:        []byte(b.secret(settings.SettingHmacSecret).text),
		HMACSecretFile:    b.setting(settings.SettingHmacSecretFile).text,
		JWKS:              b.keySets(),
		Issuers:           b.setting(settings.SettingIssuers).list,
		Audiences:         b.setting(settings.SettingAudiences).list,
		Families:          b.families(),
		FamilyClaim:       b.setting(settings.SettingFamilyClaim).text,
		OrganisationClaim: b.setting(settings.SettingOrganisationClaim).text,
		CustomClaim:       b.setting(settings.SettingCustomClaim).text,
		PermissionsClaim:  b.setting(settings.SettingPermissionsClaim).text,
		RoleClaim:         b.setting(settings.SettingRoleClaim).text,
	}
	c.FamilyMap = b.familyMap(c.Families)
	b.onlyOne(settings.SettingHmacSecret, settings.SettingHmacSecretFile, settings.SettingJwks)
	b.onlyOne(settings.SettingIssuers, settings.SettingJwks) // the issuers are those of the key sets
	for _, key := range []settings.Setting{settings.SettingHmacSecret, settings.SettingHmacSecretFile, settings.SettingJwks} {
		if v, ok := b.lookup(key); ok {
			b.config.AuthFrom = v.from
		}
	}
}

// onlyOne refuses more than one of settings that exclude each other.
func (b *builder) onlyOne(all ...settings.Setting) {
	var first settings.Setting
	var from string
	for _, s := range all {
		v, ok := b.lookup(s)
		switch {
		case !ok, s.Type == typeList && len(v.list) == 0:
		case from == "":
			first, from = s, v.from
		default:
			b.problem(v.from, "%s cannot be given together with %s (%s)", s.Name, first.Name, from)
			return
		}
	}
}

func (b *builder) keySets() map[string]string {
	s := settings.SettingJwks
	sets := map[string]string{}
	for _, p := range b.pairsOf(s) {
		if p.value == "" {
			b.problem(p.from, "%s: an issuer without a file or URL", s.Name)
			continue
		}
		sets[p.name] = p.value
	}
	return sets
}

// families is the number of families. One that is wrong counts as the largest, so that nothing is judged by a number that nobody gave.
func (b *builder) families() uint32 {
	v := b.setting(settings.SettingFamilies)
	n, err := decimal(v.text)
	most := b.config.Limits.FamiliesMax
	switch {
	case b.missing(settings.SettingFamilies):
		return uint32(most)
	case err != nil:
		b.problem(v.from, "%s: %v", settings.SettingFamilies.Name, err)
		return uint32(most)
	case n < 1 || n > most:
		b.problem(v.from, "%s: %d is not from 1 to families_max %d", settings.SettingFamilies.Name, n, most)
		return uint32(most)
	}
	return uint32(n)
}

// missing reports whether the value of a setting is unknown because what the file says of it was refused, and nobody else gives one.
func (b *builder) missing(s settings.Setting) bool {
	_, ok := b.lookup(s)
	return !ok && b.file.wrong[s.Name]
}

func (b *builder) familyMap(families uint32) map[string]uint32 {
	s := settings.SettingFamilyMap
	numbers := map[string]uint32{}
	for _, p := range b.pairsOf(s) {
		n, err := decimal(p.value)
		switch {
		case err != nil:
			b.problem(p.from, "%s: the family of %q: %v", s.Name, p.name, err)
		case n < 1 || n > int64(families):
			b.problem(p.from, "%s: the family %d of %q is not from 1 to %s %d", s.Name, n, p.name, settings.SettingFamilies.Name, families)
		default:
			numbers[p.name] = uint32(n)
		}
	}
	return numbers
}

// checkTokens looks at what token listeners cannot do without, and at what is there for nothing.
func (b *builder) checkTokens() {
	c := &b.config.Auth
	keys := len(c.HMACSecret) > 0 || c.HMACSecretFile != "" || len(c.JWKS) > 0 ||
		b.missing(settings.SettingHmacSecret) || b.missing(settings.SettingHmacSecretFile) || b.missing(settings.SettingJwks)
	i := slices.IndexFunc(b.config.Listeners, func(l Listener) bool { return l.Auth == AuthToken })
	if i < 0 {
		if keys {
			b.config.Warnings = append(b.config.Warnings, b.config.AuthFrom+" has no effect: no listener asks for tokens")
		}
		return
	}
	listener := b.config.Listeners[i].AuthFrom
	if sets, _ := b.lookup(settings.SettingJwks); !keys && len(sets.pairs) == 0 { // wrong entries are reported already
		b.problem(orPlace(b.config.AuthFrom, listener), "a token listener needs an entry in %s, %s or %s",
			settings.SettingHmacSecret.Name, settings.SettingHmacSecretFile.Name, settings.SettingJwks.Name)
	}
	if v, _ := b.lookup(settings.SettingFamilyMap); len(v.pairs) == 0 && !b.missing(settings.SettingFamilyMap) {
		b.problem(orPlace(v.from, listener), "a token listener needs an entry in %s: every token would be refused", settings.SettingFamilyMap.Name)
	}
	if v, _ := b.lookup(settings.SettingAudiences); len(c.Audiences) == 0 && !b.missing(settings.SettingAudiences) {
		b.problem(orPlace(v.from, listener), "a token listener needs an entry in %s: every token would be refused", settings.SettingAudiences.Name)
	}
}

// adminToken reads the token of the admin interface.
func (b *builder) adminToken() {
	v := b.secret(settings.SettingAdminToken)
	file := b.setting(settings.SettingAdminTokenFile)
	b.config.AdminToken, b.config.AdminTokenFile, b.config.AdminTokenFrom = v.text, file.text, v.from
	if file.text != "" {
		b.config.AdminTokenFrom = file.from
	}
	b.onlyOne(settings.SettingAdminToken, settings.SettingAdminTokenFile)
	if v.text == "" {
		return
	}
	if err := CheckAdminToken(v.text); err != nil {
		b.problem(v.from, "%s: %v", settings.SettingAdminToken.Name, err)
	}
}

// AdminTokenMax is the largest admin token in bytes.
const AdminTokenMax = 4096

// CheckAdminToken says what is wrong with an admin token that no client could send in an Authorization header (RFC 6750 section 2.1).
// The error holds nothing of it.
func CheckAdminToken(token string) error {
	const punctuation = "-._~+/="
	switch {
	case token == "":
		return errors.New("the token is empty")
	case len(token) > AdminTokenMax:
		return fmt.Errorf("the token is longer than %d bytes", AdminTokenMax)
	}
	for _, r := range token {
		alphanumeric := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !alphanumeric && !strings.ContainsRune(punctuation, r) {
			return errors.New("the token holds something else than letters, digits and " + punctuation)
		}
	}
	return nil
}
