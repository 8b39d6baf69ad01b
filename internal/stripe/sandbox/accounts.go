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

// Accounts are the connected accounts, which receive transfers.
type Accounts struct {
	store  *store
	events *events
	url    string // where browsers reach the pages
}

func (as *Accounts) routes(f *front) {
	f.onPost("/v1/accounts", as.create)
	f.onGet("/v1/accounts/{id}", func(r *http.Request) answer {
		if a := as.store.Accounts.get(r.PathValue("id")); a != nil {
			if a.Gone {
				return accountGone(a.ID)
			}
			return ok(a)
		}
		return missing("account", r.PathValue("id"))
	})
	f.onPost("/v1/account_links", as.createLink)
	f.pages.HandleFunc("GET /pay/accounts/{id}", as.page)
	f.pages.HandleFunc("POST /pay/accounts/{id}", as.clicked)
}

// wanted is what Stripe wants to know of everybody.
var wanted = []string{"business_type", "external_account", "individual.first_name", "individual.last_name",
	"tos_acceptance.date"}

func (as *Accounts) create(_ *http.Request, form url.Values) answer {
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
		Created:      as.store.now(),
		Metadata:     nested(form, "metadata"),
	}
	a.want(wanted, "requirements.past_due")
	as.store.Accounts.put(a.ID, a)
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

func (as *Accounts) createLink(_ *http.Request, form url.Values) answer {
	if as.store.Accounts.get(form.Get("account")) == nil {
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
		Expires: as.store.clock().Add(linkLife).Unix(),
	}
	as.store.Links.put(l.ID, l)
	return ok(map[string]any{
		"object":     "account_link",
		"created":    as.store.now(),
		"expires_at": l.Expires,
		"url":        as.url + "/pay/accounts/" + l.ID,
	})
}

func (as *Accounts) page(w http.ResponseWriter, r *http.Request) {
	as.store.mu.Lock()
	l := as.store.Links.get(r.PathValue("id"))
	refresh, spent := "", false
	if l != nil {
		refresh, spent = l.Refresh, l.Used || as.store.now() > l.Expires
	}
	as.store.mu.Unlock()
	switch {
	case l == nil:
		http.NotFound(w, r)
	case spent:
		http.Redirect(w, r, refresh, http.StatusSeeOther)
	default:
		show(w, "account", pageData{Title: "Sandbox onboarding", What: "Who are you, and where is your bank account?"})
	}
}

func (as *Accounts) clicked(w http.ResponseWriter, r *http.Request) {
	back := as.filledIn(r)
	if back == "" {
		http.NotFound(w, r)
		return
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// filledIn stores what an account's owner entered, and returns the URL they go to next; "": there is no such page.
func (as *Accounts) filledIn(r *http.Request) (back string) {
	as.store.mu.Lock()
	defer as.store.mu.Unlock()
	l := as.store.Links.get(r.PathValue("id"))
	switch {
	case l == nil:
	case l.Used || as.store.now() > l.Expires:
		back = l.Refresh
	default:
		l.Used, back = true, l.Return
		a := as.store.Accounts.get(l.Account)
		switch r.FormValue("answer") {
		case "all":
			as.fillIn(a, nil)
		case "no_bank":
			as.fillIn(a, []string{"external_account"})
		case "document":
			as.fillIn(a, []string{"individual.verification.document"})
		}
		as.store.save()
	}
	return back
}

// fillIn is an owner who has filled in the form, with what is missing still.
func (as *Accounts) fillIn(a *account, due []string) {
	a.Submitted = true
	a.want(due, "requirements.past_due")
	as.events.emitAt(a.ID, "account.updated", a)
	as.events.emitAt(a.ID, "capability.updated", capability{
		ID:        "transfers",
		Object:    "capability",
		Account:   a.ID,
		Requested: true,
		Status:    a.Capabilities["transfers"],
	})
}

// Deauthorize disconnects an account from the platform, as its owner or Stripe may.
func (as *Accounts) Deauthorize(accountID string) {
	as.store.mu.Lock()
	defer as.store.mu.Unlock()
	if a := as.store.Accounts.get(accountID); a != nil {
		a.Gone = true
		as.events.emitAt(a.ID, "account.application.deauthorized", map[string]any{
			"id":     newID("ca"),
			"object": "application",
			"name":   "Muster",
		})
		as.store.save()
	}
}

// Onboard is an account's owner telling Stripe everything but what is named as due. It is also how Stripe asks for more
// later on.
func (as *Accounts) Onboard(accountID string, due ...string) {
	as.store.mu.Lock()
	defer as.store.mu.Unlock()
	if a := as.store.Accounts.get(accountID); a != nil {
		as.fillIn(a, due)
		as.store.save()
	}
}

// IDs are the ids of all connected accounts, oldest first.
func (as *Accounts) IDs() []string {
	as.store.mu.Lock()
	defer as.store.mu.Unlock()
	return slices.Clone(as.store.Accounts.Order)
}
