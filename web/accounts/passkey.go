package accounts

import (
	"encoding/json"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// passkeyCookie keeps the secret of a ceremony that the browser has to finish.
const passkeyCookie = "muster_passkey"

// passkeyPages add passkeys, and sign people in with them.
type passkeyPages struct {
	*page.Site
	signIn *signInPages
}

func (s *passkeyPages) passkeysPage(v *page.Visit) error { return s.showPasskeys(v, nil) }

func (s *passkeyPages) showPasskeys(v *page.Visit, errs map[string]string) error {
	all, err := s.Accounts.Passkeys.List(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	rows := make([]PasskeyRow, len(all))
	for i, k := range all {
		rows[i] = PasskeyRow{ID: k.ID.String(), Name: k.Name, Created: view.Clock(k.CreatedAt, s.Now())}
		if k.LastUsedAt != nil {
			rows[i].Used = view.Clock(*k.LastUsedAt, s.Now())
		}
	}
	return s.Render(v, PasskeysPage(v.Page("Passkeys", ""), rows, errs))
}

// ceremony answers app.js with what the browser needs, or with a message.
func (s *passkeyPages) ceremony(v *page.Visit, c account.Ceremony, err error) error {
	v.W.Header().Set("Content-Type", "application/json")
	answer := map[string]any{"options": c.Options}
	if err != nil {
		f := fault.From(err)
		if f == nil {
			return err
		}
		v.W.WriteHeader(f.Kind.HTTPStatus())
		answer = map[string]any{"message": f.Error()}
	} else {
		s.SetCookie(v.W, passkeyCookie, c.Challenge, 10*time.Minute)
	}
	return json.NewEncoder(v.W).Encode(answer)
}

// ceremonyOf returns the secret of the ceremony that the browser has finished.
func (s *passkeyPages) ceremonyOf(v *page.Visit) string {
	c, err := v.R.Cookie(passkeyCookie)
	if err != nil {
		return ""
	}
	s.SetCookie(v.W, passkeyCookie, "", -1)
	return c.Value
}

func (s *passkeyPages) beginPasskey(v *page.Visit) error {
	c, err := s.Accounts.Passkeys.Begin(v.R.Context(), v.Who, v.R.FormValue("password"))
	return s.ceremony(v, c, err)
}

func (s *passkeyPages) addPasskey(v *page.Visit) error {
	err := s.Accounts.Passkeys.Add(v.R.Context(), v.Who, s.ceremonyOf(v), v.R.FormValue("name"),
		[]byte(v.R.FormValue("response")))
	return s.afterPasskey(v, err)
}

// afterPasskey shows the passkeys again, with the message of err.
func (s *passkeyPages) afterPasskey(v *page.Visit, err error) error {
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error { return s.showPasskeys(v, errs) })
	}
	return page.Back(v, "/account/passkeys")
}

func passkeyOf(v *page.Visit) (id.Passkey, error) {
	k, err := id.Parse[id.Passkey](chi.URLParam(v.R, "id"))
	if err != nil {
		return k, fault.New(fault.NotFound, "passkey not found")
	}
	return k, nil
}

func (s *passkeyPages) renamePasskey(v *page.Visit) error {
	k, err := passkeyOf(v)
	if err == nil {
		err = s.Accounts.Passkeys.Rename(v.R.Context(), v.Who, k, v.R.FormValue("name"))
	}
	return s.afterPasskey(v, err)
}

func (s *passkeyPages) removePasskey(v *page.Visit) error {
	k, err := passkeyOf(v)
	if err == nil {
		err = s.Accounts.Passkeys.Remove(v.R.Context(), v.Who, k)
	}
	return s.afterPasskey(v, err)
}

func (s *passkeyPages) beginPasskeySignIn(v *page.Visit) error {
	c, err := s.Accounts.Passkeys.BeginSignIn(v.R.Context(), page.Address(v.R))
	return s.ceremony(v, c, err)
}

func (s *passkeyPages) passkeySignIn(v *page.Visit) error {
	f := SignForm{Next: v.R.FormValue("next")}
	secret, _, err := s.Accounts.Passkeys.SignIn(v.R.Context(), s.ceremonyOf(v), []byte(v.R.FormValue("response")),
		account.SignIn{Address: page.Address(v.R), UserAgent: v.R.UserAgent()})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.Render(v, SignIn(v.Page("Sign in", "signin"), s.signIn.gate(v, f)))
		})
	}
	return s.signIn.openSession(v, secret, f.Next)
}
