package accounts

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"time"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/qr"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/page"
)

// challengeCookie keeps the secret of a sign-in that waits for its second factor.
const challengeCookie = "muster_challenge"

// openSession sets the session's cookie after a sign-in, and redirects to next, a path of this site.
func (s *Pages) openSession(v *page.Visit, secret, next string) error {
	s.SetCookie(v.W, s.SessionCookie(), secret, 90*24*time.Hour)
	s.SetCookie(v.W, challengeCookie, "", -1)
	http.Redirect(v.W, v.R, page.OwnPath(next), http.StatusSeeOther)
	return nil
}

// showCodeForm shows the form of the second factor, if err is that of a sign-in that needs one; else it returns false.
func (s *Pages) showCodeForm(v *page.Visit, err error, next string) (bool, error) {
	var need *account.SecondFactorNeeded
	if !errors.As(err, &need) {
		return false, nil
	}
	s.SetCookie(v.W, challengeCookie, need.Challenge, 10*time.Minute)
	return true, s.Render(v, SecondFactor(v.Page("Sign in", "signin"), SignForm{Next: next}))
}

// finishSignIn takes the code of a sign-in whose password was right.
func (s *Pages) finishSignIn(v *page.Visit) error {
	f := SignForm{Next: v.R.FormValue("next")}
	challenge := ""
	if c, err := v.R.Cookie(challengeCookie); err == nil {
		challenge = c.Value
	}
	secret, _, err := s.Accounts.FinishSignIn(v.R.Context(), challenge, v.R.FormValue("code"), account.SignIn{
		Address: page.Address(v.R), UserAgent: v.R.UserAgent(),
	})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			if fault.Is(err, fault.Unauthorized) {
				f.Errors = map[string]string{"": errs[""]}
				return s.Render(v, SignIn(v.Page("Sign in", "signin"), s.gate(v, f)))
			}
			f.Errors = errs
			return s.Render(v, SecondFactor(v.Page("Sign in", "signin"), f))
		})
	}
	return s.openSession(v, secret, f.Next)
}

func (s *Pages) factorPage(v *page.Visit) error { return s.showFactor(v, Factor{}) }

// showFactor renders the page of two-factor sign-in; f carries what a form left.
func (s *Pages) showFactor(v *page.Visit, f Factor) error {
	now, err := s.Accounts.SecondFactorOf(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	f.On, f.CodesLeft = now.TOTP, int(now.RecoveryCodes)
	return s.Render(v, FactorPage(v.Page("Two-factor sign-in", ""), f))
}

func (s *Pages) beginTOTP(v *page.Visit) error {
	setup, err := s.Accounts.BeginTOTP(v.R.Context(), v.Who, v.R.FormValue("password"))
	if err != nil {
		return s.againFactor(v, err, "password", Factor{})
	}
	picture, err := qrPNG(setup.URL)
	if err != nil {
		return err
	}
	return s.showFactor(v, Factor{Secret: setup.Secret, QR: picture})
}

func (s *Pages) confirmTOTP(v *page.Visit) error {
	codes, err := s.Accounts.ConfirmTOTP(v.R.Context(), v.Who, v.R.FormValue("code"))
	if err != nil {
		return s.againFactor(v, err, "code", Factor{Confirm: true})
	}
	return s.showFactor(v, Factor{Codes: codes}) // shown in this response only
}

func (s *Pages) removeTOTP(v *page.Visit) error {
	if err := s.Accounts.RemoveTOTP(v.R.Context(), v.Who, v.R.FormValue("password"), v.R.FormValue("code")); err != nil {
		return s.againFactor(v, err, "code", Factor{})
	}
	return page.Back(v, "/account/two-factor")
}

func (s *Pages) renewCodes(v *page.Visit) error {
	codes, err := s.Accounts.RenewRecoveryCodes(v.R.Context(), v.Who, v.R.FormValue("password"), v.R.FormValue("code"))
	if err != nil {
		return s.againFactor(v, err, "code", Factor{})
	}
	return s.showFactor(v, Factor{Codes: codes})
}

// againFactor shows the page again with the message of a form at a field.
func (s *Pages) againFactor(v *page.Visit, err error, field string, f Factor) error {
	return s.Again(v, err, func(errs map[string]string) error {
		f.Errors = errs
		if errs[""] != "" {
			f.Errors = map[string]string{field: errs[""]}
		}
		return s.showFactor(v, f)
	})
}

// qrPNG returns a QR code as the data URI of an image.
func qrPNG(text string) (string, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err == nil {
		code, err = barcode.Scale(code, 240, 240)
	}
	if err != nil {
		return "", fmt.Errorf("make a QR code: %w", err)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, code); err != nil {
		return "", fmt.Errorf("make a QR code: %w", err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()), nil
}
