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

// Me is the caller of the API.
type Me struct {
	User    User     `json:"user"`
	Org     Org      `json:"org"`
	Role    string   `json:"role" doc:"of the user in the organisation" enum:"owner,admin,member,operator,billing,viewer" example:"owner"`
	Scopes  []string `json:"scopes" doc:"what this token may do"`
	TokenID id.Token `json:"token_id"`
}

// VerificationSent is the answer to a request for another verification link.
type VerificationSent struct {
	To string `json:"to" doc:"the address the link went to"`
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

// SSHKey is a public key of the org.
type SSHKey struct {
	ID          id.SSHKey `json:"id"`
	Name        string    `json:"name"`
	PublicKey   string    `json:"public_key"`
	Fingerprint string    `json:"fingerprint"`
	CreatedAt   time.Time `json:"created_at"`
}

// PasswordChanged is the answer to a change of the password.
type PasswordChanged struct {
	Changed bool `json:"changed"`
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

// DeletionStanding reports whether the caller's account can be deleted now.
type DeletionStanding struct {
	Reasons []string   `json:"reasons"` // what prevents it; empty: nothing
	Credit  money.Nano `json:"credit"`  // balance of their organisations
}

// DeviceLogin is a login that was begun, and that a person grants in a browser.
type DeviceLogin struct {
	DeviceCode      string    `json:"device_code" doc:"a secret: poll with it"`
	UserCode        string    `json:"user_code" doc:"what the person enters" example:"BCDF-GHJK"`
	VerificationURL string    `json:"verification_url" doc:"where the person enters it" example:"https://muster.example/device"`
	ExpiresAt       time.Time `json:"expires_at"`
	IntervalMS      int64     `json:"interval_ms" doc:"how long to wait between polls"`
}

// DeviceAnswer is what became of a device login.
type DeviceAnswer struct {
	Status string `json:"status" enum:"pending,slow_down,granted,denied,expired" doc:"slow_down: wait 5 seconds longer from now on; expired: also if its token was fetched"`
	Token  string `json:"token,omitempty" doc:"the API token when it was granted; shown once"`
}

// SignUpRequest is the body of SignUp.
type SignUpRequest struct {
	Email    string `json:"email"`
	Password string `json:"password" doc:"10 to 200 characters" writeOnly:"true"`
	Name     string `json:"name,omitempty" doc:"of you and of your organisation"`
}

// ChangePasswordRequest is the body of ChangePassword.
type ChangePasswordRequest struct {
	Old          string `json:"old_password" maxLength:"1000"`
	New          string `json:"new_password" maxLength:"1000" doc:"at least 10 characters"`
	RevokeTokens bool   `json:"revoke_tokens,omitempty" doc:"end your other API tokens too"`
}

// DeleteMeRequest is the body of DeleteMe.
type DeleteMeRequest struct {
	Password string `json:"password" doc:"yours" writeOnly:"true"`
	Confirm  string `json:"confirm" doc:"your e-mail address"`
	GiveUp   bool   `json:"give_up_balance,omitempty" doc:"give up the money that is left"`
}

// BeginDeviceLoginRequest is the body of BeginDeviceLogin.
type BeginDeviceLoginRequest struct {
	Machine string `json:"machine" maxLength:"200" doc:"what the person knows the machine by; they see it before they answer" example:"ada@laptop"`
}

// PollDeviceLoginRequest is the body of PollDeviceLogin.
type PollDeviceLoginRequest struct {
	DeviceCode string `json:"device_code" maxLength:"100" writeOnly:"true"`
}

// CreateTokenRequest is the body of CreateToken.
type CreateTokenRequest struct {
	Name      string   `json:"name" doc:"what the token is for"`
	Scopes    []string `json:"scopes" doc:"read, clusters, hosts, billing, members; within your own"`
	ExpiresIn int64    `json:"expires_in,omitempty" doc:"seconds; left out: never" minimum:"1" maximum:"315360000"`
}

// AddSSHKeyRequest is the body of AddSSHKey.
type AddSSHKeyRequest struct {
	Name      string `json:"name,omitempty" doc:"left out: the key's comment"`
	PublicKey string `json:"public_key" doc:"one line of an authorized_keys file"`
}

// Export gets your personal data as JSON, without secrets.
func (s AccountService) Export(ctx context.Context) (out json.RawMessage, err error) {
	err = s.c.call(ctx, http.MethodGet, path("me", "export"), nil, nil, &out)
	return out, err
}
