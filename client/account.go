package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// User is a person.
type User struct {
	ID        id.User   `json:"id"`
	Email     string    `json:"email"`
	Name      string    `json:"name"`
	Admin     bool      `json:"admin"`
	Verified  bool      `json:"email_verified" doc:"the e-mail address is known to be the user's"`
	CreatedAt time.Time `json:"created_at"`
}

// Org is an organisation, which owns money, clusters and hosts.
type Org struct {
	ID       id.Org `json:"id"`
	Name     string `json:"name"`
	Personal bool   `json:"personal"`
	Zone     string `json:"zone" doc:"the IANA time zone in which its days, months and years begin" example:"Europe/Berlin"`
}

// SignedUp is the answer to a sign-up.
type SignedUp struct {
	User  User   `json:"user"`
	Org   Org    `json:"org"`
	Token string `json:"token" doc:"an API token with all scopes; shown once"`
}

// SignUp creates an account. It needs no token.
func (c *Client) SignUp(ctx context.Context, email, password, name string) (SignedUp, error) {
	return post[SignedUp](ctx, c, "/signup", map[string]string{"email": email, "password": password, "name": name})
}

// Me is the caller of the API.
type Me struct {
	User    User     `json:"user"`
	Org     Org      `json:"org"`
	Role    string   `json:"role" doc:"of the user in the organisation" enum:"owner,admin,member,operator,billing,viewer" example:"owner"`
	Scopes  []string `json:"scopes" doc:"what this token may do"`
	TokenID id.Token `json:"token_id"`
}

// Me returns who the token belongs to, and its scopes.
func (c *Client) Me(ctx context.Context) (Me, error) { return get[Me](ctx, c, "/me", nil) }

// VerificationSent is the answer to a request for another verification link.
type VerificationSent struct {
	To string `json:"to" doc:"the address the link went to"`
}

// SendVerification sends the link that verifies the caller's e-mail address again.
func (c *Client) SendVerification(ctx context.Context) (to string, err error) {
	v, err := post[VerificationSent](ctx, c, "/me/email-verification", struct{}{})
	return v.To, err
}

// Token is an API token without its secret.
type Token struct {
	ID         id.Token   `json:"id"`
	Name       string     `json:"name"`
	Hint       string     `json:"hint" doc:"the secret's last four characters"`
	Scopes     []string   `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at" doc:"null: never"`
	LastUsedAt *time.Time `json:"last_used_at"`
}

// NewToken is a token with its secret, which is shown only once.
type NewToken struct {
	Token
	Secret string `json:"token" doc:"the secret; shown once"`
}

// CreateToken creates a token. If expires is 0, the token does not expire.
func (c *Client) CreateToken(ctx context.Context, name string, scopes []string,
	expires time.Duration) (NewToken, error) {
	in := struct {
		Name      string   `json:"name"`
		Scopes    []string `json:"scopes"`
		ExpiresIn int64    `json:"expires_in,omitempty"`
	}{name, scopes, int64(expires.Seconds())}
	return post[NewToken](ctx, c, "/tokens", in)
}

// Tokens lists the org's tokens.
func (c *Client) Tokens(ctx context.Context, p PageOf) (Page[Token], error) {
	return get[Page[Token]](ctx, c, "/tokens", p.query())
}

// RevokeToken revokes a token at once.
func (c *Client) RevokeToken(ctx context.Context, t id.Token) error {
	return c.remove(ctx, "/tokens/"+t.String(), nil)
}

// SSHKey is a public key of the org.
type SSHKey struct {
	ID          id.SSHKey `json:"id"`
	Name        string    `json:"name"`
	PublicKey   string    `json:"public_key"`
	Fingerprint string    `json:"fingerprint"`
	CreatedAt   time.Time `json:"created_at"`
}

// AddSSHKey adds a key, given as one line of an authorized_keys file. If name is "", the key's comment is its name.
func (c *Client) AddSSHKey(ctx context.Context, name, line string) (SSHKey, error) {
	in := struct {
		Name      string `json:"name,omitempty"`
		PublicKey string `json:"public_key"`
	}{name, line}
	return post[SSHKey](ctx, c, "/ssh-keys", in)
}

// SSHKeys lists the org's keys.
func (c *Client) SSHKeys(ctx context.Context, p PageOf) (Page[SSHKey], error) {
	return get[Page[SSHKey]](ctx, c, "/ssh-keys", p.query())
}

// DeleteSSHKey deletes a key.
func (c *Client) DeleteSSHKey(ctx context.Context, k id.SSHKey) error {
	return c.remove(ctx, "/ssh-keys/"+k.String(), nil)
}

// PasswordChanged is the answer to a change of the password.
type PasswordChanged struct {
	Changed bool `json:"changed"`
}

// ChangePassword replaces the caller's password and ends all sessions of the dashboard. revokeTokens also revokes the
// caller's other API tokens.
func (c *Client) ChangePassword(ctx context.Context, current, next string, revokeTokens bool) error {
	in := map[string]any{"old_password": current, "new_password": next, "revoke_tokens": revokeTokens}
	return c.call(ctx, http.MethodPut, "/me/password", nil, in, nil)
}

// Session is one browser in which the caller is signed in to the dashboard.
type Session struct {
	ID         id.Session `json:"id"`
	Address    string     `json:"address" doc:"where it was opened from"`
	UserAgent  string     `json:"user_agent"`
	CreatedAt  time.Time  `json:"created_at"`
	LastSeenAt time.Time  `json:"last_seen_at" doc:"to the minute"`
	ExpiresAt  time.Time  `json:"expires_at"`
}

// Sessions lists the caller's sessions, the last used first. It needs a token with all scopes.
func (c *Client) Sessions(ctx context.Context) (Page[Session], error) {
	return get[Page[Session]](ctx, c, "/me/sessions", nil)
}

// EndSession signs the caller out in one browser.
func (c *Client) EndSession(ctx context.Context, s id.Session) error {
	return c.remove(ctx, "/me/sessions/"+s.String(), nil)
}

// DeletionStanding reports whether the caller's account can be deleted now.
type DeletionStanding struct {
	Reasons []string   `json:"reasons"` // what prevents it; empty: nothing
	Credit  money.Nano `json:"credit"`  // balance of their organisations
}

// DeletionStanding returns whether the caller's account can be deleted now.
func (c *Client) DeletionStanding(ctx context.Context) (DeletionStanding, error) {
	return get[DeletionStanding](ctx, c, "/me/deletion", nil)
}

// Export returns the caller's personal data, as JSON.
func (c *Client) Export(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, "/me/export", nil)
}

// DeleteMe erases the caller's data. confirm is their e-mail address; giveUp forfeits the money that is left.
func (c *Client) DeleteMe(ctx context.Context, password, confirm string, giveUp bool) error {
	in := map[string]any{"password": password, "confirm": confirm, "give_up_balance": giveUp}
	return c.call(ctx, http.MethodPut, "/me/deletion", nil, in, nil)
}

// DeviceLogin is a login that was begun, and that a person grants in a browser.
type DeviceLogin struct {
	DeviceCode      string    `json:"device_code" doc:"a secret: poll with it"`
	UserCode        string    `json:"user_code" doc:"what the person enters" example:"BCDF-GHJK"`
	VerificationURL string    `json:"verification_url" doc:"where the person enters it" example:"https://muster.example/device"`
	ExpiresAt       time.Time `json:"expires_at"`
	IntervalMS      int64     `json:"interval_ms" doc:"how long to wait between polls"`
}

// BeginDeviceLogin begins a login. It needs no token.
func (c *Client) BeginDeviceLogin(ctx context.Context, machine string) (DeviceLogin, error) {
	return post[DeviceLogin](ctx, c, "/device-logins", map[string]string{"machine": machine})
}

// DeviceAnswer is what became of a device login.
type DeviceAnswer struct {
	Status string `json:"status" enum:"pending,slow_down,granted,denied,expired" doc:"slow_down: wait 5 seconds longer from now on; expired: also if its token was fetched"`
	Token  string `json:"token,omitempty" doc:"the API token when it was granted; shown once"`
}

// PollDeviceLogin returns what became of a device login. It needs no token.
func (c *Client) PollDeviceLogin(ctx context.Context, deviceCode string) (DeviceAnswer, error) {
	return post[DeviceAnswer](ctx, c, "/device-logins/token", map[string]string{"device_code": deviceCode})
}
