package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// account is a connected account (Express).
type account struct {
	ID           string              `json:"id"`
	Object       string              `json:"object"`
	Type         string              `json:"type"`
	Country      string              `json:"country"`
	Email        *string             `json:"email"`
	Capabilities map[string]string   `json:"capabilities"`
	Charges      bool                `json:"charges_enabled"`
	Payouts      bool                `json:"payouts_enabled"`
	Submitted    bool                `json:"details_submitted"`
	Currency     string              `json:"default_currency"`
	Requirements accountRequirements `json:"requirements"`
	Created      int64               `json:"created"`
	Metadata     map[string]string   `json:"metadata"`
	TOS          tosAcceptance       `json:"tos_acceptance"`
	Gone         bool                `json:"x_gone,omitempty"` // not connected to the platform any more
}

type tosAcceptance struct {
	Agreement string `json:"service_agreement,omitempty"`
}

// capability is what an account may do.
type capability struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Account   string `json:"account"`
	Requested bool   `json:"requested"`
	Status    string `json:"status"`
}

// regions are the countries whose platforms may pay accounts in all of them under the full service agreement: the
// United States, the United Kingdom, Canada, Switzerland and the EEA.
var regions = strings.Fields("US GB CA CH AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IS IT LI LT LU LV MT NL NO " +
	"PL PT RO SE SI SK")

// accountGone is the answer to what concerns an account that is not connected any more.
func accountGone(id string) answer {
	return apiError{
		Status: 403,
		Type:   "invalid_request_error",
		Code:   "account_invalid",
		Message: "The provided key does not have access to account '" + id +
			"' (or that account does not exist). Application access may have been revoked.",
	}.answer()
}

type accountRequirements struct {
	CurrentlyDue  []string `json:"currently_due"`
	EventuallyDue []string `json:"eventually_due"`
	PastDue       []string `json:"past_due"`
	Pending       []string `json:"pending_verification"`
	Errors        []any    `json:"errors"`
	Disabled      *string  `json:"disabled_reason"`
	Deadline      *int64   `json:"current_deadline"`
}

// accountLink is a page on which an account's owner enters their details. It is valid for one visit.
type accountLink struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Refresh string `json:"refresh_url"`
	Return  string `json:"return_url"`
	Expires int64  `json:"expires_at"`
	Used    bool   `json:"used"`
}

const linkLife = 5 * time.Minute

func (s *Server) accountRoutes() {
	s.onPost("/v1/accounts", s.createAccount)
	s.onGet("/v1/accounts/{id}", func(r *http.Request) answer {
		if a := s.s.Accounts.get(r.PathValue("id")); a != nil {
			if a.Gone {
				return accountGone(a.ID)
			}
			return ok(a)
		}
		return missing("account", r.PathValue("id"))
	})
	s.onPost("/v1/account_links", s.createAccountLink)
	s.pages.HandleFunc("GET /pay/accounts/{id}", s.accountPage)
	s.pages.HandleFunc("POST /pay/accounts/{id}", s.accountClicked)
}

// wanted is what Stripe wants to know of everybody.
var wanted = []string{"business_type", "external_account", "individual.first_name", "individual.last_name",
	"tos_acceptance.date"}

func (s *Server) createAccount(_ *http.Request, form url.Values) answer {
	if form.Get("type") != "express" {
		return invalid("type", "only Express accounts are imitated")
	}
	if len(form.Get("country")) != 2 {
		return invalid("country", "Country '%s' is unknown.", form.Get("country"))
	}
	agreement := or(form.Get("tos_acceptance[service_agreement]"), "full")
	switch inside := slices.Contains(regions, form.Get("country")); {
	case inside && agreement == "recipient":
		return invalid("tos_acceptance[service_agreement]", "The recipient service agreement is for accounts outside the "+
			"platform's region.")
	case !inside && agreement != "recipient":
		return invalid("country", "Accounts in %s cannot be created under the full service agreement by platforms in your "+
			"country.", form.Get("country"))
	}
	a := &account{
		TOS:          tosAcceptance{agreement},
		ID:           newID("acct"),
		Object:       "account",
		Type:         "express",
		Country:      form.Get("country"),
		Email:        orNull(form.Get("email")),
		Capabilities: map[string]string{"transfers": "inactive"},
		Currency:     "eur",
		Created:      s.now(),
		Metadata:     nested(form, "metadata"),
	}
	a.want(wanted, "requirements.past_due")
	s.s.Accounts.put(a.ID, a)
	return ok(a)
}

// want sets what is due; while something is, the account receives nothing.
func (a *account) want(due []string, disabled string) {
	due = append([]string{}, due...)
	a.Requirements = accountRequirements{
		CurrentlyDue:  due,
		EventuallyDue: due,
		PastDue:       []string{},
		Pending:       []string{},
		Errors:        []any{},
	}
	a.Capabilities["transfers"], a.Payouts = "active", true
	if len(due) > 0 {
		a.Requirements.Disabled = orNull(disabled)
		a.Requirements.PastDue = due
		a.Capabilities["transfers"], a.Payouts = "inactive", false
	}
}

func (s *Server) createAccountLink(_ *http.Request, form url.Values) answer {
	if s.s.Accounts.get(form.Get("account")) == nil {
		return missing("account", form.Get("account"))
	}
	if form.Get("type") != "account_onboarding" || form.Get("refresh_url") == "" || form.Get("return_url") == "" {
		return invalid("", "an onboarding link needs its type and both URLs")
	}
	l := &accountLink{
		ID:      newID("alink"),
		Account: form.Get("account"),
		Refresh: form.Get("refresh_url"),
		Return:  form.Get("return_url"),
		Expires: s.cfg.Now().Add(linkLife).Unix(),
	}
	s.s.Links.put(l.ID, l)
	return ok(map[string]any{
		"object":     "account_link",
		"created":    s.now(),
		"expires_at": l.Expires,
		"url":        s.cfg.PublicURL + "/pay/accounts/" + l.ID,
	})
}

func (s *Server) accountPage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	l := s.s.Links.get(r.PathValue("id"))
	refresh, spent := "", false
	if l != nil {
		refresh, spent = l.Refresh, l.Used || s.now() > l.Expires
	}
	s.mu.Unlock()
	switch {
	case l == nil:
		http.NotFound(w, r)
	case spent:
		http.Redirect(w, r, refresh, http.StatusSeeOther)
	default:
		show(w, "account", pageData{Title: "Sandbox onboarding", What: "Who are you, and where is your bank account?"})
	}
}

func (s *Server) accountClicked(w http.ResponseWriter, r *http.Request) {
	back := s.filledIn(r)
	if back == "" {
		http.NotFound(w, r)
		return
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// filledIn stores what an account's owner entered, and returns the URL they go to next; "": there is no such page.
func (s *Server) filledIn(r *http.Request) (back string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.s.Links.get(r.PathValue("id"))
	switch {
	case l == nil:
	case l.Used || s.now() > l.Expires:
		back = l.Refresh
	default:
		l.Used, back = true, l.Return
		a := s.s.Accounts.get(l.Account)
		switch r.FormValue("answer") {
		case "all":
			s.fillIn(a, nil)
		case "no_bank":
			s.fillIn(a, []string{"external_account"})
		case "document":
			s.fillIn(a, []string{"individual.verification.document"})
		}
		s.save()
	}
	return back
}

// fillIn is an owner who has filled in the form, with what is missing still.
func (s *Server) fillIn(a *account, due []string) {
	a.Submitted = true
	a.want(due, "requirements.past_due")
	s.emitAt(a.ID, "account.updated", a)
	s.emitAt(a.ID, "capability.updated", capability{
		ID:        "transfers",
		Object:    "capability",
		Account:   a.ID,
		Requested: true,
		Status:    a.Capabilities["transfers"],
	})
}

// Deauthorize disconnects an account from the platform, as its owner or Stripe may.
func (s *Server) Deauthorize(accountID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.s.Accounts.get(accountID); a != nil {
		a.Gone = true
		s.emitAt(a.ID, "account.application.deauthorized", map[string]any{
			"id":     newID("ca"),
			"object": "application",
			"name":   "Muster",
		})
		s.save()
	}
}

// Onboard is an account's owner telling Stripe everything but what is named as due. It is also how Stripe asks for more
// later on.
func (s *Server) Onboard(accountID string, due ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.s.Accounts.get(accountID); a != nil {
		s.fillIn(a, due)
		s.save()
	}
}

// Accounts are the ids of all connected accounts, oldest first.
func (s *Server) Accounts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.s.Accounts.Order)
}
