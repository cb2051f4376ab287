package engine

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/internal/devtoken"
)

// development is the part of broker.yaml about tokens for suites. Brokers that are started here verify them; one that runs elsewhere must be told.
type development struct {
	Secret   string            `yaml:"hmac_secret"`
	Issuer   string            `yaml:"issuer"`
	Audience string            `yaml:"audience"`
	Subject  string            `yaml:"subject"`
	Families map[string]uint32 `yaml:"families"`
}

func loadDevelopment(spec fs.FS) (development, error) {
	text, err := fs.ReadFile(spec, "broker.yaml")
	if err != nil {
		return development{}, err
	}
	var file struct {
		Development development `yaml:"development"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return development{}, fmt.Errorf("broker.yaml: %w", err)
	}
	return file.Development, nil
}

// familyDev is the family claim of everybody who does not say otherwise. Its family is that of anonymous sessions, so that a scenario sees
// the same in both columns.
const familyDev = "dev"

// everything is the permissions of anonymous sessions.
var everything = []string{
	"notice://**#*", "kv://**#*", "queue://**#*", "rpc://**#*", "lease://**#*", "stream://**#*", "schedule://**#*",
}

// longAfter is when tokens expire that do not say otherwise: behind everything that scenarios do to the time of day.
var longAfter = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// configure is what the configuration file of fitzd says about tokens beside the listeners, as YAML. Settings of a scenario are flags,
// which win; one that gives other keys takes the secret away.
func (e *Engine) configure(settings map[string]any) string {
	families := make([]string, 0, len(e.dev.Families))
	most := uint32(1)
	for _, name := range slices.Sorted(maps.Keys(e.dev.Families)) {
		families = append(families, fmt.Sprintf("%s: %d", name, e.dev.Families[name]))
		most = max(most, e.dev.Families[name])
	}
	text := fmt.Sprintf("families: %d\nfamily_map: {%s}\n", most, strings.Join(families, ", "))
	if _, other := settings[settingKeySets]; !other {
		text += fmt.Sprintf("hmac_secret: %q\n", e.secret())
	}
	return text
}

// settingKeySets is the setting that replaces the secret: key sets by issuer.
const settingKeySets = "jwks"

func (e *Engine) secret() string {
	if e.Broker.Secret != "" {
		return e.Broker.Secret
	}
	return e.dev.Secret
}

// claims are those of a token that is right for the broker at hand.
func (e *Engine) claims() devtoken.Claims {
	return devtoken.Claims{
		Issuer: e.dev.Issuer, Subject: e.dev.Subject, Audience: []string{e.dev.Audience}, Expires: longAfter, Family: familyDev,
		Permissions: everything,
	}
}

// token is the token of everybody in the column token who does not say otherwise.
func (e *Engine) token() (string, error) { return devtoken.Mint([]byte(e.secret()), e.claims()) }

// credentials returns the token of a client or a peer: the one that its step gives, else that of the column.
func (x *exec) credentials(given bool, text string) (string, error) {
	if given || x.cell.Auth != scenario.Token {
		return text, nil
	}
	return x.engine.token()
}

// doMint makes a token.
func (x *exec) doMint(ctx context.Context, s *scenario.Step) error {
	payload, err := x.payload(ctx, s)
	if err != nil {
		return err
	}
	header, err := x.header(s)
	if err != nil {
		return err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode(header) + "." + encode(payload)
	signature, err := x.sign(s, signed)
	if err != nil {
		return err
	}
	x.set(s.Name, signed+"."+encode(signature))
	if name := s.Text("parts"); name != "" {
		x.set(name, map[string]any{"header": encode(header), "payload": encode(payload), "signature": encode(signature)})
	}
	return nil
}

func (x *exec) header(s *scenario.Step) ([]byte, error) {
	more, err := x.mapping(s, "header")
	if err != nil {
		return nil, err
	}
	header := map[string]any{"alg": algorithm(s), "typ": "JWT"}
	maps.Copy(header, more)
	return json.Marshal(told(header))
}

// payload is the claims of a token as text.
func (x *exec) payload(ctx context.Context, s *scenario.Step) ([]byte, error) {
	text, err1 := x.text(s, "payload")
	family, err2 := x.text(s, "family")
	permissions, err3 := x.expand(s.Value("permissions"))
	more, err4 := x.mapping(s, "claims")
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return nil, err
		}
	}
	if text != "" {
		return []byte(text), nil
	}
	dev := x.engine.dev
	claims := map[string]any{
		"iss": dev.Issuer, "sub": dev.Subject, "aud": dev.Audience, "tid": familyDev, "exp": longAfter.Unix(), "permissions": everything,
	}
	if family != "" {
		claims["tid"] = family
	}
	if permissions != nil {
		claims["permissions"] = permissions
	}
	if s.Has("expires_in_ms") {
		if claims["exp"], err1 = x.instant(ctx, s, "expires_in_ms"); err1 != nil {
			return nil, err1
		}
	}
	if s.Has("valid_in_ms") {
		if claims["nbf"], err1 = x.instant(ctx, s, "valid_in_ms"); err1 != nil {
			return nil, err1
		}
	}
	maps.Copy(claims, more)
	for _, name := range s.List("without") {
		delete(claims, fmt.Sprint(name))
	}
	return json.Marshal(told(claims))
}

// instant is the time of day of a parameter, in whole seconds.
func (x *exec) instant(ctx context.Context, s *scenario.Step, key string) (int64, error) {
	ms, err := x.number(s, key, 0)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	if x.virtual() {
		c := x.brokers[scenario.DefaultBroker].Control()
		if c == nil {
			return 0, mistaken("%s needs the time of day of a broker that does not run", key)
		}
		told, err := c.Now(ctx)
		if err != nil {
			return 0, err
		}
		now = told.Wall
	}
	return now.Add(time.Duration(ms) * time.Millisecond).Unix(), nil
}

// Algorithms of mint.
const (
	signHS256 = "HS256"
	signRS256 = "RS256"
	signNone  = "none"
)

func algorithm(s *scenario.Step) string {
	if name := s.Text("algorithm"); name != "" {
		return name
	}
	return signHS256
}

func (x *exec) sign(s *scenario.Step, signed string) ([]byte, error) {
	secret, err := x.text(s, "secret")
	if err != nil {
		return nil, err
	}
	if !s.Has("secret") {
		secret = x.engine.secret()
	}
	digests := map[string]func() hash.Hash{signHS256: sha256.New, "HS384": sha512.New384, "HS512": sha512.New}
	switch name := algorithm(s); name {
	case signNone:
		return nil, nil
	case signRS256:
		m, err := x.engine.material()
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256([]byte(signed))
		return rsa.SignPKCS1v15(nil, m.key, crypto.SHA256, sum[:])
	default:
		mac := hmac.New(digests[name], []byte(secret))
		_, _ = mac.Write([]byte(signed)) // a hash takes everything
		return mac.Sum(nil), nil
	}
}

// material is keys and certificates of one run, with the files that brokers and drivers read.
type material struct {
	folder string
	key    *rsa.PrivateKey
	keySet string // file
	secure *authorities
}

// keyID is the id of the key in the key set.
const keyID = "k1"

// rsaBits is the size of the key of RS256.
const rsaBits = 2048

// lazyMaterial makes the material when the first case needs it.
type lazyMaterial struct {
	once sync.Once
	made *material
	err  error
}

// material returns the keys and certificates of the run.
func (e *Engine) material() (*material, error) {
	e.keys.once.Do(func() { e.keys.made, e.keys.err = makeMaterial() })
	return e.keys.made, e.keys.err
}

// dropMaterial removes the files of the material.
func (e *Engine) dropMaterial() {
	if m := e.keys.made; m != nil {
		_ = os.RemoveAll(m.folder) // what stays in the folder of temporary files is reported by whoever owns it
	}
}

func makeMaterial() (*material, error) {
	folder, err := os.MkdirTemp("", "fitz-keys-")
	if err != nil {
		return nil, err
	}
	m := &material{folder: folder, keySet: filepath.Join(folder, "keys.json")}
	if m.key, err = rsa.GenerateKey(rand.Reader, rsaBits); err != nil {
		return m, err
	}
	encode := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": signRS256, "kid": keyID,
		"n": encode(m.key.N.Bytes()), "e": encode(big.NewInt(int64(m.key.E)).Bytes()),
	}}})
	if err != nil {
		return m, err
	}
	if err := os.WriteFile(m.keySet, set, 0o600); err != nil {
		return m, err
	}
	m.secure, err = makeAuthorities(folder)
	return m, err
}

// wordKeySet is what stands in the settings of a scenario for the file with the key set of the run.
const wordKeySet = "{key_set}"

// replaced is settings of a scenario with the words for files of the run replaced.
func (e *Engine) replaced(settings map[string]any) (map[string]any, error) {
	sets, ok := settings[settingKeySets].(map[string]any)
	if !ok {
		return settings, nil
	}
	m, err := e.material()
	if err != nil {
		return nil, err
	}
	out, files := maps.Clone(settings), map[string]any{}
	for issuer, file := range sets {
		files[issuer] = strings.ReplaceAll(fmt.Sprint(file), wordKeySet, m.keySet)
	}
	out[settingKeySets] = files
	return out, nil
}
