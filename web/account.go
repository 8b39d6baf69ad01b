package web

import (
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/text"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) accountPage(v *visit) error { return s.showAccount(v, view.Account{}) }

// showAccount completes what a form left (an error, a new token) with the lists.
func (s *Web) showAccount(v *visit, a view.Account) error {
	ctx := v.r.Context()
	a.Email, a.Org = v.who.Email, v.who.OrgName
	profile, err := s.Accounts.Profile(ctx, v.who)
	if err != nil {
		return err
	}
	a.Verified, a.Sent = profile.Verified, v.r.FormValue("sent") != ""
	a.Zone.Zone, a.Zone.Zones, a.Zone.Saved = profile.Zone, account.Zones(), v.r.FormValue("saved") == "zone"
	tokens, err := s.Accounts.Tokens(ctx, v.who, account.Page[id.Token]{Limit: account.MaxTokens})
	if err != nil {
		return err
	}
	for _, t := range tokens {
		row := view.TokenRow{
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
	sessions, err := s.Accounts.Sessions(ctx, v.who)
	if err != nil {
		return err
	}
	a.PasswordChanged = v.r.FormValue("changed") != ""
	for _, x := range sessions {
		a.Sessions = append(a.Sessions, view.SessionRow{
			ID:      x.ID.String(),
			Address: x.Address,
			Browser: text.Ellipsis(x.UserAgent, 80),
			Used:    view.Clock(x.LastSeenAt, s.Now()),
			Current: x.Current,
		})
	}
	keys, err := s.Accounts.SSHKeys(ctx, v.who, account.Page[id.SSHKey]{Limit: account.MaxSSHKeys})
	if err != nil {
		return err
	}
	for _, k := range keys {
		a.Keys = append(a.Keys, view.KeyRow{
			ID:          k.ID.String(),
			Name:        k.Name,
			Fingerprint: k.Fingerprint,
			Created:     view.Clock(k.CreatedAt, s.Now()),
		})
	}
	if a.Legal.Errors == nil {
		l, err := s.Accounts.Legal(ctx, v.who)
		if err != nil {
			return err
		}
		a.Legal = view.LegalForm{
			Name:    l.Name,
			Address: strings.Join(l.Address, "\n"),
			Country: l.Country,
			VATID:   l.VATID,
			Kept:    l.Known(),
		}
	}
	return s.render(v, view.AccountPage(v.page("Account", ""), a))
}

func (s *Web) createToken(v *visit) error {
	if err := v.r.ParseForm(); err != nil {
		return fault.New(fault.Invalid, "the form could not be read")
	}
	_, secret, err := s.Accounts.IssueToken(v.r.Context(), v.who, account.NewToken{
		Name:   v.r.FormValue("token_name"),
		Scopes: v.r.Form["scope"],
	})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			return s.showAccount(v, view.Account{Errors: map[string]string{"token_name": first(errs, "name", "scopes", "")}})
		})
	}
	// Not redirected: the secret is shown on this answer only and stands in no URL.
	return s.showAccount(v, view.Account{NewToken: secret})
}

func (s *Web) revokeToken(v *visit) error {
	t, err := id.Parse[id.Token](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "no such token")
	}
	if err := s.Accounts.RevokeToken(v.r.Context(), v.who, t); err != nil {
		return err
	}
	return back(v, "/account#tokens")
}

func (s *Web) addKey(v *visit) error {
	a := view.Account{KeyName: v.r.FormValue("key_name"), Key: v.r.FormValue("public_key")}
	_, _, err := s.Accounts.AddSSHKey(v.r.Context(), v.who, a.KeyName, strings.TrimSpace(a.Key), idem.Request{})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			a.Errors = map[string]string{"key_name": errs["name"], "public_key": first(errs, "public_key", "")}
			return s.showAccount(v, a)
		})
	}
	return back(v, "/account#keys")
}

func (s *Web) removeKey(v *visit) error {
	k, err := id.Parse[id.SSHKey](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "no such key")
	}
	if err := s.Accounts.DeleteSSHKey(v.r.Context(), v.who, k); err != nil {
		return err
	}
	return back(v, "/account#keys")
}
