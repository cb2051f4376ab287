package auth

// Reason is why a token was refused: the detail of `connect failed: (detail)` and a label of fitz_auth_refusals_total. It is one of
// the constants below and never carries anything of a token.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	ReasonTokenMissing         Reason = "token missing"
	ReasonTokenTooLong         Reason = "token too long"
	ReasonTokenMalformed       Reason = "token malformed"
	ReasonAlgorithm            Reason = "algorithm not accepted"
	ReasonIssuer               Reason = "issuer not accepted"
	ReasonKey                  Reason = "signing key unknown"
	ReasonSignature            Reason = "signature not valid"
	ReasonExpiryMissing        Reason = "expiry missing"
	ReasonExpired              Reason = "token expired"
	ReasonNotYetValid          Reason = "token not yet valid"
	ReasonAudience             Reason = "audience not accepted"
	ReasonSubject              Reason = "subject missing"
	ReasonFamily               Reason = "family unknown"
	ReasonPermissionsMissing   Reason = "permissions missing"
	ReasonPermissionsMalformed Reason = "permissions malformed"
	ReasonTooManyPermissions   Reason = "too many permissions"
)

// Reasons are all of them.
var Reasons = []Reason{
	ReasonTokenMissing, ReasonTokenTooLong, ReasonTokenMalformed, ReasonAlgorithm, ReasonIssuer, ReasonKey, ReasonSignature,
	ReasonExpiryMissing, ReasonExpired, ReasonNotYetValid, ReasonAudience, ReasonSubject, ReasonFamily, ReasonPermissionsMissing,
	ReasonPermissionsMalformed, ReasonTooManyPermissions,
}

// Refusal is the error of a token that was refused.
type Refusal struct{ Reason Reason }

// Error returns the fixed text of the reason.
func (r *Refusal) Error() string { return string(r.Reason) }
