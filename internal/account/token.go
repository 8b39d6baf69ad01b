package account

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Tokens makes, checks and revokes API tokens.
type Tokens struct{ *core }

// TokenPrefix begins every API token, so that scanners find leaked ones: muster_pat_ and 49 base62 characters, the
// last six a CRC-32 (IEEE) of the 43 before them.
const TokenPrefix = "muster_pat_"

// MaxTokens is how many live tokens an org may have.
const MaxTokens = 100

// Token is an API token without its secret.
type Token struct {
	ID         id.Token
	Name       string
	Hint       string // last four characters of the secret
	Scopes     []string
	CreatedAt  time.Time
	ExpiresAt  *time.Time
	LastUsedAt *time.Time // to the minute
}

// NewToken is a token to make.
type NewToken struct {
	Name    string
	Scopes  []string
	Expires time.Duration // 0 = never
}

// IssuedToken is a new token with its secret, which cannot be read again.
type IssuedToken struct {
	Token
	Secret string
}

// Create makes a token for the principal's org. A token's scopes are within those of its maker. A token that makes
// another bounds it: the new one does not outlive it, and is revoked with it. Faults: Invalid, Unauthorized, Forbidden,
// QuotaExceeded.
func (ts *Tokens) Create(ctx context.Context, p Principal, n NewToken, once idem.Request) (IssuedToken,
	idem.Outcome, error) {
	return idem.Once(ctx, ts.db, once, func(ctx context.Context, tx *db.Tx) (IssuedToken, error) {
		t, secret, err := createToken(ctx, tx, p, n)
		return IssuedToken{t, secret}, err
	})
}

func createToken(ctx context.Context, tx *db.Tx, p Principal, n NewToken) (Token, string, error) {
	t := Token{ID: id.New[id.Token](), Name: strings.TrimSpace(n.Name)}
	var bad fault.Fields
	if t.Name == "" {
		bad.Add("name", "is missing: say what the token is for")
	}
	checkName(&bad, "name", t.Name)
	t.Scopes = checkScopes(&bad, n.Scopes)
	if n.Expires < 0 || n.Expires > 10*365*24*time.Hour {
		bad.Add("expires_in", "has to be between 1 second and 10 years, or left out for never")
	}
	if err := bad.Err(); err != nil {
		return Token{}, "", err
	}
	role, err := tx.Q.ShareMembership(ctx, p.Org, p.User) // a change of the role waits, and then revokes this token, too
	if db.NoRows(err) {
		return Token{}, "", fault.New(fault.Forbidden, "you are no longer a member of the organisation")
	}
	if err != nil {
		return Token{}, "", fmt.Errorf("read the role of %s: %w", p.User, err)
	}
	may := scopesNow(Role(role), p.Admin, p.Scopes)
	for _, s := range t.Scopes {
		if !slices.Contains(may, s) {
			return Token{}, "", fault.New(fault.Forbidden, "you cannot give the scope %q, which you do not have", s)
		}
	}
	count, err := tx.Q.CountTokens(ctx, p.Org)
	if err != nil {
		return Token{}, "", fmt.Errorf("count tokens: %w", err)
	}
	if count >= MaxTokens {
		return Token{}, "", fault.New(fault.QuotaExceeded, "your organisation has %d tokens, the most there may be: "+
			"revoke some first", MaxTokens)
	}
	parent, err := bound(ctx, tx, p, n.Expires, &t)
	if err != nil {
		return Token{}, "", err
	}
	secret := newToken()
	t.Hint = secret[len(secret)-4:]
	t.CreatedAt, err = tx.Q.InsertToken(ctx, dbq.InsertTokenParams{
		ID: t.ID, OrgID: p.Org, UserID: p.User, Name: t.Name, SecretHash: hashSecret(secret),
		Hint: t.Hint, Scopes: t.Scopes, ExpiresAt: t.ExpiresAt, ParentID: parent,
	})
	if err != nil {
		return Token{}, "", fmt.Errorf("insert token: %w", err)
	}
	return t, secret, audit.Record(ctx, tx, p.Event("token.create", t.ID.String(), map[string]any{
		"name":   t.Name,
		"scopes": t.Scopes,
	}))
}

// bound sets when t expires. For a token made by a token it returns the maker's id and keeps the expiry within the
// maker's, until tx has ended: a maker that is revoked at the same time takes the new token with it.
func bound(ctx context.Context, tx *db.Tx, p Principal, life time.Duration,
	t *Token) (parent pgtype.UUID, err error) {
	if life > 0 {
		now, err := tx.Now(ctx)
		if err != nil {
			return parent, err
		}
		end := now.Add(life)
		t.ExpiresAt = &end
	}
	if p.Token.IsZero() {
		return parent, nil
	}
	end, err := tx.Q.LockTokenExpiry(ctx, p.Token)
	switch {
	case db.NoRows(err):
		return parent, fault.New(fault.Unauthorized, "this token was revoked or has expired")
	case err != nil:
		return parent, fmt.Errorf("lock token %s: %w", p.Token, err)
	case end != nil && t.ExpiresAt == nil:
		t.ExpiresAt = end
	case end != nil && t.ExpiresAt.After(*end):
		return parent, fault.InvalidField("expires_in",
			"is after %s, when the token that you make it with expires", end.UTC().Format(time.RFC3339))
	}
	return p.Token.UUIDValue()
}

// Issue is Create without an idempotency key.
func (ts *Tokens) Issue(ctx context.Context, p Principal, n NewToken) (Token, string, error) {
	t, _, err := ts.Create(ctx, p, n, idem.Request{})
	return t.Token, t.Secret, err
}

func checkScopes(bad *fault.Fields, scopes []string) []string {
	if len(scopes) == 0 {
		bad.Add("scopes", "is missing: name one or more of %s", strings.Join(Scopes(), ", "))
	}
	known := append(Scopes(), ScopeAdmin)
	out := slices.Clone(scopes)
	slices.SortFunc(out, func(a, b string) int { return slices.Index(known, a) - slices.Index(known, b) })
	out = slices.Compact(out)
	for i, s := range scopes {
		if !slices.Contains(known, s) {
			bad.Add(fmt.Sprintf("scopes[%d]", i), "is not a scope: use %s", strings.Join(Scopes(), ", "))
		}
	}
	return out
}

// Principal is who a token's secret stands for, or Unauthorized. It notes that the token is in use.
func (ts *Tokens) Principal(ctx context.Context, secret string) (Principal, error) {
	if !wellFormed(secret) {
		return Principal{}, fault.New(fault.Unauthorized, "this is not an API token: it begins with %s and was shown once "+
			"when it was made", TokenPrefix)
	}
	r, err := ts.db.Q.TokenBySecret(ctx, hashSecret(secret))
	if db.NoRows(err) {
		return Principal{}, fault.New(fault.Unauthorized, "this token is not valid: it was revoked, has expired, or "+
			"belongs to another platform")
	}
	if err != nil {
		return Principal{}, fmt.Errorf("find token: %w", err)
	}
	if r.Stale {
		if err := ts.db.Q.TouchToken(ctx, r.ID); err != nil {
			return Principal{}, fmt.Errorf("touch token: %w", err)
		}
	}
	return Principal{
		User: r.UserID, Org: r.OrgID, Token: r.ID, Role: Role(r.Role), Scopes: scopesNow(Role(r.Role), r.Admin, r.Scopes),
		Admin: r.Admin && slices.Contains(r.Scopes, ScopeAdmin), Email: r.Email, OrgName: r.OrgName,
	}, nil
}

// List are the org's live ones, newest first.
func (ts *Tokens) List(ctx context.Context, p Principal, page Page[id.Token]) ([]Token, error) {
	after, err := page.After.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := ts.db.Q.ListTokens(ctx, p.Org, after, int32(page.Limit))
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	out := make([]Token, len(rows))
	for i, r := range rows {
		out[i] = Token{r.ID, r.Name, r.Hint, r.Scopes, r.CreatedAt, r.ExpiresAt, r.LastUsedAt}
	}
	return out, nil
}

// Revoke ends a token of the org at once, and the tokens that were made with it. A token can end itself and those
// that can do no more than it can.
// Faults: NotFound, Forbidden.
func (ts *Tokens) Revoke(ctx context.Context, p Principal, t id.Token) error {
	return ts.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		scopes, err := tx.Q.TokenScopes(ctx, t, p.Org)
		if db.NoRows(err) {
			return fault.New(fault.NotFound, "token not found")
		}
		if err != nil {
			return fmt.Errorf("find token: %w", err)
		}
		if t != p.Token && slices.ContainsFunc(scopes, func(s string) bool { return !p.Can(s) }) {
			return fault.New(fault.Forbidden, "this token can do more than you can: sign in to revoke it")
		}
		revoked, err := revokeTokens(ctx, tx, t)
		if err != nil {
			return err
		}
		var detail map[string]any
		if len(revoked) > 1 {
			detail = map[string]any{"tokens": revoked}
		}
		return audit.Record(ctx, tx, p.Event("token.revoke", t.String(), detail))
	})
}

// revokeTokens ends tokens and all that were made with them, and returns which ended now.
func revokeTokens(ctx context.Context, tx *db.Tx, tokens ...id.Token) (revoked []string, err error) {
	ids := make([]pgtype.UUID, len(tokens))
	for i, t := range tokens {
		ids[i] = pgtype.UUID{Bytes: t.UUID(), Valid: true}
	}
	for len(ids) > 0 {
		more, err := tx.Q.RevokeTokens(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("revoke tokens: %w", err)
		}
		if len(more) == 0 {
			break
		}
		for _, t := range more {
			revoked = append(revoked, t.String())
		}
	}
	return revoked, nil
}

const (
	base62     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomLen  = 43 // 256 bits
	checkedLen = 6  // 32 bits
)

func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	body := pad62(new(big.Int).SetBytes(b), randomLen)
	return TokenPrefix + body + checksum(body)
}

func checksum(body string) string {
	return pad62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), checkedLen)
}

// pad62 writes v in base 62, most significant first.
func pad62(v *big.Int, n int) string {
	out := make([]byte, n)
	base, digit := big.NewInt(62), new(big.Int)
	for i := n - 1; i >= 0; i-- {
		v.QuoRem(v, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}

// wellFormed recognises a mistyped token without reading the database.
func wellFormed(s string) bool {
	body, ok := strings.CutPrefix(s, TokenPrefix)
	return ok && len(body) == randomLen+checkedLen && checksum(body[:randomLen]) == body[randomLen:]
}
