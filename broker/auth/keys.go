package auth

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fitzwire/fitz/generated/go/bounds"
)

// Sizes of an RSA modulus in bits. Shorter ones can be broken; with longer ones the time that a signature takes to check would be in the
// hands of whoever wrote the key set.
const (
	keyBitsMin = 2048
	keyBitsMax = 8192
)

// keys are the keys of one set that can sign tokens, by their id.
type keys map[string]*rsa.PublicKey

// parseKeys reads a key set (RFC 7517). Keys that are for something else than RS256 signatures are skipped; a set that holds a key that
// must not be used, or none that can be, is refused as a whole.
func parseKeys(text []byte, limits *bounds.Limits) (keys, error) {
	if int64(len(text)) > limits.JwksResponseBytesMax {
		return nil, fmt.Errorf("the key set is larger than jwks_response_bytes_max %d", limits.JwksResponseBytesMax)
	}
	set, err := decodeObject(text, limits.TokenJSONDepthMax)
	if err != nil {
		return nil, errors.New("the key set is no JSON object without duplicate names")
	}
	all, ok := set["keys"].([]any)
	switch {
	case !ok:
		return nil, errors.New("the key set has no array `keys`")
	case int64(len(all)) > limits.JwksKeysMax:
		return nil, fmt.Errorf("the key set holds more than jwks_keys_max %d keys", limits.JwksKeysMax)
	}
	found := keys{}
	for i, member := range all {
		id, key, err := parseKey(member)
		if err != nil {
			return nil, fmt.Errorf("key %d of the set: %w", i+1, err)
		}
		if key == nil {
			continue
		}
		if found[id] != nil {
			return nil, fmt.Errorf("key %d of the set: another key has the same id", i+1)
		}
		found[id] = key
	}
	if len(found) == 0 {
		return nil, errors.New("the key set holds no RSA key for signatures")
	}
	return found, nil
}

// parseKey reads one key. nil: it is for something else.
func parseKey(member any) (id string, key *rsa.PublicKey, err error) {
	object, ok := member.(map[string]any)
	if !ok {
		return "", nil, errors.New("no object")
	}
	if kind, ok := text(object, "kty"); !ok || kind != "RSA" || !verifies(object) {
		return "", nil, nil
	}
	id, ok = text(object, "kid")
	if _, present := object["kid"]; present && !ok {
		return "", nil, errors.New("its id is no text")
	}
	n, nOK := number(object, "n")
	e, eOK := number(object, "e")
	switch {
	case !nOK || !eOK:
		return "", nil, errors.New("its numbers do not decode")
	case n.BitLen() < keyBitsMin || n.BitLen() > keyBitsMax:
		return "", nil, fmt.Errorf("%d bits are not from %d to %d", n.BitLen(), keyBitsMin, keyBitsMax)
	case !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0:
		return "", nil, errors.New("its exponent is not accepted")
	}
	return id, &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

// verifies reports whether a key says that it is for RS256 signatures, or does not say what it is for.
func verifies(object map[string]any) bool {
	if use, present := object["use"]; present && use != "sig" {
		return false
	}
	if algorithm, present := object["alg"]; present && algorithm != jwt.SigningMethodRS256.Name {
		return false
	}
	operations, present := object["key_ops"].([]any)
	return !present || slices.Contains(operations, any("verify"))
}

// number reads a member that is a number in base64url.
func number(object map[string]any, name string) (*big.Int, bool) {
	encoded, _ := text(object, name)
	if encoded == "" || len(encoded) > keyBitsMax/6+2 {
		return nil, false
	}
	raw, ok := decodePart([]byte(encoded))
	return new(big.Int).SetBytes(raw), ok
}

// find returns the key that a header asks for. A header without id means the only key there is.
func (k keys) find(header map[string]any) (*rsa.PublicKey, bool) {
	if _, present := header["kid"]; !present {
		for _, only := range k {
			return only, len(k) == 1
		}
	}
	id, ok := text(header, "kid")
	key := k[id]
	return key, ok && key != nil
}
