package accounts

import (
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// profilePages are the page of the account, with its tokens and keys.
type profilePages struct {
	*page.Site
	members *memberPages
}

func (s *profilePages) accountPage(v *page.Visit) error { return s.showAccount(v, Account{}) }

// showAccount renders the account page; a carries what a form left, such as an error or a new token.
func (s *profilePages) showAccount(v *page.Visit, a Account) error {
	ctx := v.R.Context()
	a.Email, a.Org = v.Who.Email, v.Who.OrgName
	profile, err := s.Accounts.Profile(ctx, v.Who)
	if err != nil {
		return err
	}
	a.Verified, a.Sent = profile.Verified, v.R.FormValue("sent") != ""
	a.Zone.Zone, a.Zone.Zones, a.Zone.Saved = profile.Zone, account.Zones(), v.R.FormValue("saved") == "zone"
	a.Scopes, a.Role = v.Who.Role.Scopes(), string(v.Who.Role)
	if err := s.members.orgRows(v, &a); err != nil {
		return err
	}
	tokens, err := s.Accounts.Tokens.List(ctx, v.Who, account.Page[id.Token]{Limit: account.MaxTokens})
	if err != nil {
		return err
	}
	for _, t := range tokens {
		row := TokenRow{
			ID:      t.ID.String(),
			Name:    t.Name,
			Hint:    t.Hint,
			Scopes:  strings.Join(t.Scopes, ", "),
			Created: view.Clock(t.CreatedAt, s.Now()),
		}
		if t.LastUsedAt != nil {
			row.Used = view.Clock(*t.LastUsedAt, s.Now())
		}
		a.Tokens = append(a.Tokens, row)
	}
	sessions, err := s.Accounts.Sessions.List(ctx, v.Who)
	if err != nil {
		return err
	}
	a.PasswordChanged = v.R.FormValue("changed") != ""
	a.EmailChangeSent = v.R.FormValue("sent-to-new") != ""
	for _, x := range sessions {
		a.Sessions = append(a.Sessions, SessionRow{
			ID:      x.ID.String(),
			Address: x.Address,
			Browser: page.BrowserName(x.UserAgent),
			Used:    view.Clock(x.LastSeenAt, s.Now()),
			Current: x.Current,
		})
	}
	keys, err := s.Accounts.SSHKeys.List(ctx, v.Who, account.Page[id.SSHKey]{Limit: account.MaxSSHKeys})
	if err != nil {
		return err
	}
	for _, k := range keys {
		a.Keys = append(a.Keys, KeyRow{
			ID:          k.ID.String(),
			Name:        k.Name,
			Fingerprint: k.Fingerprint,
			Created:     view.Clock(k.CreatedAt, s.Now()),
		})
	}
	if a.Legal.Errors == nil {
		l, err := s.Accounts.Legals.Of(ctx, v.Who)
		if err != nil {
			return err
		}
		a.Legal = LegalForm{
			Name:    l.Name,
			Address: strings.Join(l.Address, "\n"),
			Country: l.Country,
			VATID:   l.VATID,
			Kept:    l.Known(),
		}
	}
	return s.Render(v, AccountPage(v.Page("Account", ""), a))
}

func (s *profilePages) createToken(v *page.Visit) error {
	if err := v.R.ParseForm(); err != nil {
		return fault.New(fault.Invalid, "the form could not be read")
	}
	_, secret, err := s.Accounts.Tokens.Issue(v.R.Context(), v.Who, account.NewToken{
		Name:   v.R.FormValue("token_name"),
		Scopes: v.R.Form["scope"],
	})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, Account{Errors: map[string]string{"token_name": page.First(errs, "name", "scopes", "")}})
		})
	}
	// Do not redirect: the secret is shown in this response only and must not be in a URL.
	return s.showAccount(v, Account{NewToken: secret})
}

func (s *profilePages) revokeToken(v *page.Visit) error {
	t, err := id.Parse[id.Token](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "token not found")
	}
	if err := s.Accounts.Tokens.Revoke(v.R.Context(), v.Who, t); err != nil {
		return err
	}
	return page.Back(v, "/account#tokens")
}

func (s *profilePages) addKey(v *page.Visit) error {
	a := Account{KeyName: v.R.FormValue("key_name"), Key: v.R.FormValue("public_key")}
	_, _, err := s.Accounts.SSHKeys.Add(v.R.Context(), v.Who, a.KeyName, strings.TrimSpace(a.Key), idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			a.Errors = map[string]string{"key_name": errs["name"], "public_key": page.First(errs, "public_key", "")}
			return s.showAccount(v, a)
		})
	}
	return page.Back(v, "/account#keys")
}

func (s *profilePages) removeKey(v *page.Visit) error {
	k, err := id.Parse[id.SSHKey](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "key not found")
	}
	if err := s.Accounts.SSHKeys.Delete(v.R.Context(), v.Who, k); err != nil {
		return err
	}
	return page.Back(v, "/account#keys")
}
