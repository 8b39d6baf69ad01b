package accounts

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image/png"

	"github.com/boombuler/barcode"
	"github.com/boombuler/barcode/qr"

	"github.com/musterhq/muster/web/page"
)

// factorPages set up the second factor.
type factorPages struct {
	*page.Site
}

func (s *factorPages) factorPage(v *page.Visit) error { return s.showFactor(v, Factor{}) }

// showFactor renders the page of two-factor sign-in; f carries what a form left.
func (s *factorPages) showFactor(v *page.Visit, f Factor) error {
	now, err := s.Accounts.SecondFactors.Of(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	f.On, f.CodesLeft = now.TOTP, int(now.RecoveryCodes)
	return s.Render(v, FactorPage(v.Page("Two-factor sign-in", ""), f))
}

func (s *factorPages) beginTOTP(v *page.Visit) error {
	setup, err := s.Accounts.SecondFactors.BeginTOTP(v.R.Context(), v.Who, v.R.FormValue("password"))
	if err != nil {
		return s.againFactor(v, err, "password", Factor{})
	}
	picture, err := qrPNG(setup.URL)
	if err != nil {
		return err
	}
	return s.showFactor(v, Factor{Secret: setup.Secret, QR: picture})
}

func (s *factorPages) confirmTOTP(v *page.Visit) error {
	codes, err := s.Accounts.SecondFactors.ConfirmTOTP(v.R.Context(), v.Who, v.R.FormValue("code"))
	if err != nil {
		return s.againFactor(v, err, "code", Factor{Confirm: true})
	}
	return s.showFactor(v, Factor{Codes: codes}) // shown in this response only
}

func (s *factorPages) removeTOTP(v *page.Visit) error {
	if err := s.Accounts.SecondFactors.RemoveTOTP(v.R.Context(), v.Who, v.R.FormValue("password"),
		v.R.FormValue("code")); err != nil {
		return s.againFactor(v, err, "code", Factor{})
	}
	return page.Back(v, "/account/two-factor")
}

func (s *factorPages) renewCodes(v *page.Visit) error {
	codes, err := s.Accounts.SecondFactors.RenewRecoveryCodes(v.R.Context(), v.Who, v.R.FormValue("password"),
		v.R.FormValue("code"))
	if err != nil {
		return s.againFactor(v, err, "code", Factor{})
	}
	return s.showFactor(v, Factor{Codes: codes})
}

// againFactor shows the page again with the message of a form at a field.
func (s *factorPages) againFactor(v *page.Visit, err error, field string, f Factor) error {
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
