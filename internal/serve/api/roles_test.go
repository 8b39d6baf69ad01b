package api_test

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/serve/api"
)

// objects are an org's things by the noun of the path that names them.
type objects map[string]string

// furnish gives the org of a token one of each thing that paths name.
func (w *world) furnish(token, email string) objects {
	w.t.Helper()
	o := objects{"hosts": w.sell(token, 2, "2.00").String()}
	w.fund(token, "60.00")
	org := w.orgOf(token)
	post := func(path, body string, status int) string {
		return w.want(w.call(token, "POST", api.Base+path, body), status, "").text("id")
	}
	o["ssh-keys"] = post("/ssh-keys", `{"public_key":"`+newKey(w.t)+`"}`, 201)
	o["buckets"] = post("/buckets", w.newBucket("results"), 201)
	o["shared"] = post("/shared", `{"name":"`+strings.NewReplacer("@", "-at-", ".", "-").Replace(email)+
		`","kind":"nfs","quota_gb":10}`, 201)
	o["webhooks"] = post("/webhooks", `{"url":"https://example.com/`+email+`"}`, 201)
	o["notices"] = w.notice(token).String()
	o["deliveries"] = o["notices"]
	o["tokens"] = post("/tokens", `{"name":"ci","scopes":["read"]}`, 201)
	o["budgets"] = post("/budgets", `{"project":"vision","cap":"50.00"}`, 200)
	o["topups"] = post("/billing/topups", `{"amount":"20.00"}`, 201)
	o["invitations"] = post("/invitations", `{"email":"x`+email+`","role":"viewer"}`, 201)
	w.exec("UPDATE host SET org_id = $1 WHERE id = $2", w.orgOf(w.user("lender"+strings.ReplaceAll(email, "@", "."))),
		hostOf(w.t, o["hosts"])) // no one rents from themselves
	o["quotes"] = post("/quotes", oneGPU, 201)
	o["clusters"] = post("/clusters", oneGPU, 202)
	w.exec("UPDATE host SET org_id = $1 WHERE id = $2", org, hostOf(w.t, o["hosts"]))
	for noun, sql := range map[string]string{
		"members": "SELECT user_id FROM membership WHERE org_id = $1 ORDER BY created_at LIMIT 1",
		"leases":  "SELECT id FROM lease WHERE renter_org_id = $1",
	} {
		var raw uuid.UUID
		if err := w.db.Pool.QueryRow(w.t.Context(), sql, org).Scan(&raw); err != nil {
			w.t.Fatal(err)
		}
		o[noun] = id.FromUUID[id.User](raw).String()
		if noun == "leases" {
			o[noun] = id.FromUUID[id.Lease](raw).String()
		}
	}
	return o
}

const oneGPU = `{"nodes":1,"gpus_per_node":1,"image":"registry.test/job:1"}`

// bodies are what routes accept whose path names an object.
var bodies = map[string]string{
	"PATCH /api/v1/hosts/{id}":           `{"name":"x"}`,
	"PATCH /api/v1/buckets/{id}":         `{"access_key_id":"a","secret_access_key":"s"}`,
	"POST /api/v1/hosts/{id}/actions":    `{"action":"drain"}`,
	"POST /api/v1/clusters/{id}/actions": `{"action":"restart"}`,
	"PATCH /api/v1/bond/hosts/{id}":      `{"gang_liability_max":"1.00"}`,
	"PATCH /api/v1/members/{id}":         `{"role":"viewer"}`,
	"PATCH /api/v1/billing/cards/{id}":   `{"default":true}`,
}

// missing are routes whose object no org of the test has: a gateway, shells, a gang, postpaid terms.
var missing = []string{"GET /api/v1/ssh-gateway", "GET /api/v1/clusters/{id}/ssh",
	"GET /api/v1/bond/clusters/{id}/suspensions", "GET /api/v1/billing/postpaid/usage"}

var placeholder = regexp.MustCompile(`/([a-z-]+)/\{(id|number|month|port|uuid|name|code|invoice|notice)\}`)

// pathTo fills a route's path with the org's objects; own is false if the org has none of the kind.
func (o objects) pathTo(path string) (filled string, own bool) {
	own = true
	filled = placeholder.ReplaceAllStringFunc(path, func(s string) string {
		m := placeholder.FindStringSubmatch(s)
		switch v := o[m[1]]; {
		case m[2] == "port":
			return "/" + m[1] + "/8080"
		case m[2] == "month":
			return "/" + m[1] + "/2026-01"
		case v == "" || m[2] != "id" && m[2] != "notice" || strings.HasPrefix(path, "/api/v1/me/"):
			own = false
			return "/" + m[1] + "/x"
		default:
			return "/" + m[1] + "/" + v
		}
	})
	return filled, own
}

// Every route, called by every role: the permission table says who is refused with 403, whatever the object. A foreign
// object is not found, also by those who may do everything in their own org. An own one is found.
func TestEveryRouteByEveryRole(t *testing.T) {
	t.Parallel()
	w := open(t, func(_ *api.Config, a *account.Config) {
		a.Post = func(context.Context, *db.Tx, account.Letter) error { return nil }
	})
	ada, eve := w.user("ada"), w.user("eve")
	w.exec("UPDATE app_user SET email_verified_at = now()")
	ours, theirs := w.furnish(ada, "ada@example.com"), w.furnish(eve, "eve@example.com")
	tokens := map[account.Role]string{}
	for _, role := range account.Roles() {
		tokens[role] = w.colleague(ada, role)
	}
	called := 0
	for _, route := range api.Routes(w.api) {
		scopes, staff, guarded := api.Needs(w.api, route)
		method, path, _ := strings.Cut(route, " ")
		if !guarded {
			continue
		}
		for role, token := range tokens {
			may := !staff && (len(scopes) == 0 || slices.ContainsFunc(scopes, role.Can))
			reading := method == http.MethodGet
			body := bodies[route]
			if body == "" && method != http.MethodGet && method != http.MethodDelete {
				body = "{}"
			}
			mine, own := ours.pathTo(path)
			if may && (!reading || slices.Contains(missing, route)) { // it would be done
				own = false
			}
			if !may || own {
				r := w.brief(token, method, mine, body)
				called++
				if refused := r.StatusCode == http.StatusForbidden; refused == may {
					t.Errorf("%s by the %s: %d %s", route, role, r.StatusCode, r.raw)
				}
				if may && own && r.StatusCode >= 400 && r.StatusCode != 409 && r.StatusCode != 422 && r.StatusCode != 503 {
					t.Errorf("%s of an own object by the %s: %d %s", route, role, r.StatusCode, r.raw)
				}
			}
			foreign, named := theirs.pathTo(path)
			if !named || foreign == path || strings.HasSuffix(path, "/ssh") && may || strings.Contains(path, "{month}") {
				continue
			}
			want := http.StatusForbidden
			if may {
				want = http.StatusNotFound
			}
			called++
			if r := w.brief(token, method, foreign, body); r.StatusCode != want {
				t.Errorf("%s of a foreign object by the %s: %d, want %d %s", route, role, r.StatusCode, want, r.raw)
			}
		}
	}
	if called < 500 {
		t.Errorf("only %d calls", called)
	}
}

func newKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func hostOf(t *testing.T, s string) id.Host {
	t.Helper()
	h, err := id.Parse[id.Host](s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// brief is call for routes that may go on indefinitely.
func (w *world) brief(token, method, path, body string) reply {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer cancel()
	return w.callIn(ctx, token, method, path, body)
}

// colleague makes a new user a member of a token's org, and returns a token with everything that their role has.
func (w *world) colleague(of string, role account.Role) string {
	w.t.Helper()
	name := "one-" + string(role)
	w.user(name)
	_, p, err := w.acc.Sessions.SignIn(w.t.Context(), account.SignIn{Email: name + "@example.com", Password: password})
	if err != nil {
		w.t.Fatal(err)
	}
	p.Org, p.Role, p.Scopes, p.Session = w.orgOf(of), role, role.Scopes(), id.Session{}
	w.exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, $3)", p.Org, p.User, string(role))
	_, secret, err := w.acc.Tokens.Issue(w.t.Context(), p, account.NewToken{Name: "t", Scopes: role.Scopes()})
	if err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// What a viewer can change is their own: the list is short, and by hand.
func TestAViewerChangesNothingOfTheOrg(t *testing.T) {
	t.Parallel()
	w := open(t)
	own := []string{"POST /api/v1/tokens", "DELETE /api/v1/tokens/{id}",
		"POST /api/v1/notices/read", "POST /api/v1/notices/{id}/read"} // each member marks what it has read
	for _, route := range api.Routes(w.api) {
		scopes, staff, guarded := api.Needs(w.api, route)
		if strings.HasPrefix(route, "GET ") || !guarded || staff || slices.Contains(own, route) ||
			strings.Contains(route, "/api/v1/me/") {
			continue
		}
		if len(scopes) == 0 || slices.ContainsFunc(scopes, account.RoleViewer.Can) {
			t.Errorf("a viewer may call %s", route)
		}
	}
}
