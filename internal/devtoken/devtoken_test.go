package devtoken_test

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fitzwire/fitz/internal/devtoken"
)

var secret = []byte("dev-test-secret")

func TestMint(t *testing.T) {
	for _, test := range []struct {
		name   string
		claims devtoken.Claims
		want   map[string]any
	}{
		{"nothing but the issuer", devtoken.Claims{}, map[string]any{"iss": ""}},
		{"everything", devtoken.Claims{
			Issuer: "i", Subject: "s", Audience: []string{"fitz"}, Expires: time.Unix(200, 0), NotBefore: time.Unix(100, 0), Family: "dev",
			Permissions: []string{"lease://**#*"}, Extra: map[string]any{"scope": "lease.read"},
		}, map[string]any{
			"iss": "i", "sub": "s", "aud": "fitz", "exp": 200.0, "nbf": 100.0, "tid": "dev",
			"permissions": []any{"lease://**#*"}, "scope": "lease.read",
		}},
		{"several audiences, no permission, other identity", devtoken.Claims{
			Audience: []string{"a", "b"}, Permissions: []string{}, Family: "dev", Extra: map[string]any{"tid": 7},
		}, map[string]any{"iss": "", "aud": []any{"a", "b"}, "permissions": []any{}, "tid": 7.0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			token, err := devtoken.Mint(secret, test.claims)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(token, ".")
			if len(parts) != 3 {
				t.Fatalf("%d parts", len(parts))
			}
			payload, err := base64.RawURLEncoding.DecodeString(parts[1])
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(payload, &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("claims %v, want %v", got, test.want)
			}
			if err := jwt.SigningMethodHS256.Verify(parts[0]+"."+parts[1], signature(t, parts[2]), secret); err != nil {
				t.Error(err)
			}
		})
	}
}

func signature(t *testing.T, part string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestNoSecretNoToken(t *testing.T) {
	if token, err := devtoken.Mint(nil, devtoken.Claims{}); err == nil {
		t.Errorf("minted %q", token)
	}
}
