package web_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// formScopes are the scopes that each form requires, by hand. Forms that are not here are for every member, or for
// everybody; every page that is only read is for every member.
var formScopes = map[string]string{
	"/volumes":                      "clusters",
	"/volumes/{id}/snapshots":       "clusters",
	"/volumes/{id}/restore":         "clusters",
	"/volumes/{id}/delete":          "clusters",
	"/buckets":                      "clusters",
	"/buckets/{id}/check":           "clusters",
	"/buckets/{id}/credentials":     "clusters",
	"/buckets/{id}/delete":          "clusters",
	"/shared":                       "hosts",
	"/shared/{id}/withdraw":         "hosts",
	"/shared/{id}/erase":            "clusters",
	"/quotes":                       "clusters",
	"/quotes/{id}/return":           "clusters",
	"/clusters":                     "clusters",
	"/templates":                    "clusters",
	"/templates/{name}/delete":      "clusters",
	"/clusters/release":             "clusters",
	"/clusters/{id}/actions":        "clusters",
	"/clusters/{id}/snapshots":      "clusters",
	"/account/ssh-keys":             "clusters",
	"/account/ssh-keys/{id}/remove": "clusters",

	"/hosts/enrollments":    "hosts",
	"/hosts/several":        "hosts",
	"/hosts/{id}/liability": "hosts",
	"/hosts/{id}/terms":     "hosts",
	"/hosts/{id}/actions":   "hosts",
	"/hosts/{id}/reclaim":   "hosts",
	"/hosts/{id}/agent":     "hosts",
	"/hosts/{id}/data":      "hosts",
	"/hosts/bond/terms":     "hosts",

	"/hosts/bond/deposit":                 "billing",
	"/hosts/bond/withdraw":                "billing",
	"/payouts/account":                    "billing",
	"/billing/topups":                     "billing",
	"/billing/auto-topup":                 "billing",
	"/billing/cards":                      "billing",
	"/billing/cards/{id}/default":         "billing",
	"/billing/cards/{id}/remove":          "billing",
	"/billing/budgets":                    "billing",
	"/billing/budgets/{id}/remove":        "billing",
	"/billing/refunds":                    "billing",
	"/billing/promo":                      "billing",
	"/billing/postpaid/invoices/{id}/pay": "billing",
	"/account/legal":                      "billing",
	"/account/legal/erase":                "billing",
	"/account/zone":                       "billing",

	"/account/members/{id}/role":         "members",
	"/account/members/{id}/remove":       "members",
	"/account/invitations":               "members",
	"/account/invitations/{id}/withdraw": "members",

	"/notices/webhooks":                                "members",
	"/notices/webhooks/{id}/enable":                    "members",
	"/notices/webhooks/{id}/delete":                    "members",
	"/notices/webhooks/{id}/deliveries/{notice}/retry": "members",
}

// personal are the forms that every visitor may send: they are about the visitor. Those that sign out are not sent.
var personal = []string{"/signin", "/signup", "/forgot-password", "/reset-password", "/verify-email", "/signout",
	"/signout/everywhere", "/theme", "/notices/read", "/notices/{id}/read", "/account/orgs/{id}/switch", "/account/leave",
	"/invitations",
	"/account/verification", "/account/delete", "/account/tokens", "/account/tokens/{id}/revoke", "/account/password",
	"/account/sessions/{id}/end", "/signin/code", "/account/email", "/change-email",
	"/account/passkeys", "/account/passkeys/begin",
	"/account/passkeys/{id}/name", "/account/passkeys/{id}/remove", "/signin/passkey", "/signin/passkey/begin", "/device",
	"/device/answer", "/account/two-factor",
	"/account/two-factor/confirm", "/account/two-factor/off", "/account/two-factor/codes", "/estimate", "/hosts/enrolling",
	"/offers/lines", "/offers/form"}

// Every page and form, opened by every role, and for objects of another organisation.
func TestEveryPageByEveryRole(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	mine := b.org()
	other, _ := fleettest.Org(t, b.db)
	_, doc := b.get("/hosts")
	ownHost := strings.TrimPrefix(doc.Find(`main a[href^="/hosts/host_"]`).AttrOr("href", ""), "/hosts/")
	if ownHost == "" {
		t.Fatal("no host")
	}
	seen := map[string]bool{}
	for _, role := range account.Roles() {
		b.exec("UPDATE membership SET role = $1 WHERE org_id = $2", string(role), mine)
		err := chi.Walk(b.routes, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			form := method == http.MethodPost
			if strings.Contains(path, "*") || method != http.MethodGet && !form || strings.HasSuffix(path, "/live") {
				return nil
			}
			seen[path] = seen[path] || form
			scope, listed := formScopes[path]
			staff := strings.HasPrefix(path, "/admin")
			if form && !listed && !staff && !slices.Contains(personal, path) {
				t.Fatalf("%s is in neither list of this test", path)
			}
			if form && slices.Contains(personal, path) || path == "/verify-email/{code}" || path == "/invitations/{code}" {
				return nil
			}
			may := !listed || !form || role.Can(scope)
			if strings.Contains(path, "/ports/") || strings.Contains(path, "/terminal") { // they open what runs
				may = role.Can(account.ScopeClusters)
			}
			want := http.StatusForbidden
			switch {
			case staff:
				want = http.StatusNotFound
			case may && strings.Contains(path, "/hosts/{id}"):
				want = http.StatusNotFound // of another organisation
			case may && form:
				return nil // it would be done
			case may:
				want = 0
			}
			b.exec("UPDATE host SET org_id = $1", other)
			status := b.status(method, strings.NewReplacer("{id}", ownHost, "{month}", "2026-01").Replace(path))
			b.exec("UPDATE host SET org_id = $1", mine)
			switch {
			case want != 0 && status != want:
				t.Errorf("%s %s by the %s: %d, want %d", method, path, role, status, want)
			case want == 0 && (status == http.StatusForbidden || status >= 500):
				t.Errorf("%s %s by the %s: %d", method, path, role, status)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if status := b.status(http.MethodGet, "/hosts/"+ownHost); status != http.StatusOK {
			t.Errorf("an own host, for the %s: %d", role, status)
		}
	}
	for path := range formScopes {
		if !seen[path] {
			t.Errorf("there is no form %s", path)
		}
	}
}

// status is that of a page, or of a form that is sent empty.
func (b *browser) status(method, path string) int {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(""))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// A form that was shown in one organisation is refused after the visitor switched to another one.
func TestSwitchOrg_FormsOfTheOtherOrgAreRefused(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	mine := b.org()
	other, _ := fleettest.Org(t, b.db)
	b.exec("INSERT INTO membership (org_id, user_id, role) SELECT $1, id, 'admin' FROM app_user "+
		"WHERE email = 'mira@northlight.example'", other)
	_, doc := b.get("/account")
	shown := doc.Find(`#zone form input[name="for_org"]`).AttrOr("value", "")
	if shown != mine.String() {
		t.Fatalf("the form is for %q", shown)
	}
	if res, _ := b.post("/account/orgs/"+other.String()+"/switch", url.Values{"for_org": {shown}}); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	res, doc := b.post("/account/zone", url.Values{"zone": {"Europe/Berlin"}, "for_org": {shown}})
	if res.StatusCode != http.StatusConflict || !strings.Contains(doc.Find("main").Text(), "another organisation") {
		t.Errorf("%d %s", res.StatusCode, doc.Find("main").Text())
	}
	if res, _ := b.post("/account/zone", url.Values{
		"zone":    {"Europe/Berlin"},
		"for_org": {other.String()},
	}); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	if res, _ := b.post("/account/orgs/org_0000000000000000000000000z/switch",
		nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("a foreign organisation: %s", res.Status)
	}
}
