package api_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/serve/api"
)

// posting is a call of a POST route that succeeds.
type posting struct{ token, path, body string }

// notReplayed are the POST routes that TestEveryPostReplays does not call, and why.
var notReplayed = map[string]string{
	"/admin/version-floors/{component}/remove":   "needs no key: a floor that was removed is not found",
	"/stripe/webhook":                            "outside the API: Stripe repeats an event under its own id",
	"/admin/leases/{id}/credit":                  "needs a lease with a credit that waits, which takes signed usage",
	"/admin/leases/{id}/unfreeze":                "needs a host that signed two accounts of the same time",
	"/admin/transactions/{id}/compensate":        "needs a charge, which takes signed usage",
	"/volumes/{id}/clones":                       "needs a host that has committed a snapshot",
	"/volumes/{id}/restore":                      "needs a host that has committed a snapshot",
	"/volumes/{id}/transfers/{transfer}/numbers": "needs no key: numbers that are not used cost nothing",
	"/volumes/{id}/snapshots":                    "needs a cluster that writes it; a repeat returns the same id",
	"/billing/postpaid/invoices/{id}/pay":        "needs an invoice that Stripe has opened and a card has refused",
}

// freshBody are the POST routes whose repeated answer differs from the first, and why.
var freshBody = map[string]string{
	"/payouts/account": "Stripe's link is for one visit: a repetition gets another one for the same account",
}

// TestEveryPostReplays calls each POST route of the API's document twice with one Idempotency-Key. The second answer
// has the header Idempotent-Replayed and is otherwise the first (but for freshBody). A new POST route needs an entry in
// postings.
func TestEveryPostReplays(t *testing.T) {
	t.Parallel()
	w := open(t, func(_ *api.Config, c *account.Config) {
		c.Post = func(context.Context, *db.Tx, account.Letter) error { return nil }
	})
	calls, renter := w.postings()
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Example json.RawMessage }
			} `json:"requestBody"`
		} `json:"paths"`
	}
	if err := json.Unmarshal([]byte(w.call("", "GET", api.Base+"/openapi.json", nil).raw), &doc); err != nil {
		t.Fatal(err)
	}
	called := 0
	for _, route := range slices.Sorted(maps.Keys(doc.Paths)) {
		op, ok := doc.Paths[route]["post"]
		if !ok {
			continue
		}
		route = strings.TrimPrefix(route, api.Base)
		make, ok := calls[route]
		_, exempt := notReplayed[route]
		c := posting{renter, route, string(op.RequestBody.Content["application/json"].Example)}
		switch {
		case ok && exempt:
			t.Errorf("POST %s: it has an entry in postings and in notReplayed", route)
			continue
		case exempt:
			continue
		case ok:
			c = make()
		}
		called++
		first := w.call(c.token, "POST", api.Base+c.path, c.body, "Idempotency-Key", "once")
		if first.StatusCode >= 300 || first.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("POST %s: %d %q: %s\n%s", route, first.StatusCode, first.Header.Get("Idempotent-Replayed"), first.raw,
				w.log)
			continue
		}
		again := w.call(c.token, "POST", api.Base+c.path, c.body, "Idempotency-Key", "once")
		if again.StatusCode != first.StatusCode || again.Header.Get("Idempotent-Replayed") != "true" ||
			again.raw != first.raw && freshBody[route] == "" {
			t.Errorf("POST %s: %d %s\nrepeated: %d %q %s", route, first.StatusCode, first.raw, again.StatusCode,
				again.Header.Get("Idempotent-Replayed"), again.raw)
		}
	}
	if called < 25 {
		t.Errorf("only %d POST routes were called", called)
	}
}

// postings makes a call of each POST route whose example does not do, when the walk comes to it.
func (w *world) postings() (calls map[string]func() posting, renter string) {
	renter = w.user("ada")
	operator, boss := w.user("olga"), w.boss("ann")
	w.sell(operator, 8, "2.00")
	drained := w.sell(operator, 8, "2.00").String()
	w.fund(renter, "400.00")
	w.fund(operator, "50.00")
	payer, seller := w.orgOf(renter), w.orgOf(operator)
	w.onboard(operator)
	w.want(w.call(boss, "PATCH", api.Base+"/admin/postpaid/"+payer.String(),
		`{"on":true,"credit_limit":"500.00","reason":"x"}`), 200, "")

	call := func(token, path, body string) func() posting {
		return func() posting { return posting{token, path, body} }
	}
	const why = `{"reason":"a test"}`
	const oneGPU = `{"nodes":1,"gpus_per_node":1,"image":"registry.test/job:1"}`
	w.exec("UPDATE app_user SET email_verified_at = now() WHERE email <> 'ada@example.com'")
	return map[string]func() posting{
		"/volumes": call(renter, "/volumes", `{"name":"data","size_gb":10}`),
		"/shared":  call(renter, "/shared", `{"name":"replayed","kind":"nfs","quota_gb":10}`),
		"/buckets": call(renter, "/buckets", w.newBucket("replayed")),
		"/buckets/{id}/check": func() posting {
			made := w.want(w.call(renter, "POST", api.Base+"/buckets", w.newBucket("checked")), 201, "")
			return posting{renter, "/buckets/" + made.text("id") + "/check", `{}`}
		},
		"/signup":                call("", "/signup", `{"email":"eve@example.com","password":"`+password+`"}`),
		"/me/email-verification": call(renter, "/me/email-verification", `{}`),
		"/tokens":                call(renter, "/tokens", `{"name":"ci","scopes":["read"]}`),
		"/device-logins":         call("", "/device-logins", `{"machine":"laptop"}`),
		"/device-logins/token": call("", "/device-logins/token",
			`{"device_code":"0000000000000000000000000000000000000000000"}`),
		"/invitations": call(operator, "/invitations", `{"email":"ann@example.com","role":"viewer"}`),
		"/me/invitations/{id}/accept": func() posting {
			made := w.want(w.call(boss, "POST", api.Base+"/invitations", `{"email":"olga@example.com","role":"viewer"}`), 201,
				"")
			return posting{operator, "/me/invitations/" + made.text("id") + "/accept", `{}`}
		},
		"/notices/read": call(renter, "/notices/read", `{"newest":"`+id.New[id.Notice]().String()+`"}`),
		"/notices/{id}/read": func() posting {
			return posting{renter, "/notices/" + w.notice(renter).String() + "/read", `{}`}
		},
		"/webhooks": call(renter, "/webhooks", `{"url":"https://example.com/muster"}`),
		"/webhooks/{id}/enable": func() posting {
			return posting{renter, "/webhooks/" + w.webhook(renter) + "/enable", `{}`}
		},
		"/webhooks/{id}/deliveries/{notice}/retry": func() posting {
			made := w.webhook(renter)
			return posting{renter, "/webhooks/" + made + "/deliveries/" + w.notice(renter).String() + "/retry", `{}`}
		},
		"/ssh-keys": call(renter, "/ssh-keys",
			`{"public_key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPq+3iZ4H5BqYQxw3kMGNvX3oS1bVHcdqfIYbgcHhKcA ada"}`),

		"/quotes":    call(renter, "/quotes", oneGPU),
		"/clusters":  call(renter, "/clusters", oneGPU),
		"/templates": call(renter, "/templates", `{"name":"mine","spec":`+oneGPU+`}`),
		"/clusters/{id}/actions": func() posting {
			made := w.want(w.call(renter, "POST", api.Base+"/clusters", oneGPU), 202, "")
			return posting{renter, "/clusters/" + made.text("id") + "/actions", `{"action":"release"}`}
		},
		"/host-enrollments":   call(operator, "/host-enrollments", `{"region":"eu-test"}`),
		"/hosts/{id}/actions": call(operator, "/hosts/"+drained+"/actions", `{"action":"drain"}`),

		"/payouts/account":  call(operator, "/payouts/account", `{"country":"DE"}`),
		"/bond/deposits":    call(operator, "/bond/deposits", `{"amount":"20.00"}`),
		"/bond/withdrawals": call(operator, "/bond/withdrawals", `{"amount":"5.00"}`),
		"/budgets":          call(renter, "/budgets", `{"project":"vision","cap":"5.00"}`),
		"/billing/topups":   call(renter, "/billing/topups", `{"amount":"20.00"}`),
		"/billing/cards":    call(renter, "/billing/cards", `{}`),
		"/billing/refunds":  call(renter, "/billing/refunds", `{"amount":"5.00"}`),
		"/billing/promo": func() posting {
			w.call(boss, "POST", api.Base+"/admin/promo-codes",
				`{"code":"welcome-2027","amount":"5.00","max_uses":3,"reason":"a fair"}`)
			return posting{renter, "/billing/promo", `{"code":"welcome-2027"}`}
		},

		"/admin/promo-codes": call(boss, "/admin/promo-codes",
			`{"code":"another-2027","amount":"5.00","max_uses":3,"reason":"a fair"}`),
		"/admin/promo-codes/{code}/disable": call(boss, "/admin/promo-codes/another-2027/disable", why),
		"/admin/payouts": func() posting {
			w.earn(payer, seller, "asked", 42*money.Unit)
			return posting{boss, "/admin/payouts", `{"org_id":"` + seller.String() + `","reason":"asked"}`}
		},
		"/admin/payouts/{id}/reverse": func() posting {
			paid := w.want(w.call(operator, "GET", api.Base+"/payouts", nil), 200, "").list("items")
			one, _ := paid[0].(map[string]any)["id"].(string)
			return posting{boss, "/admin/payouts/" + one + "/reverse", why}
		},
		"/admin/payout-run": func() posting {
			w.earn(payer, seller, "late", 42*money.Unit)
			return posting{boss, "/admin/payout-run", why}
		},
		"/admin/payout-reviews/{id}/release": func() posting { return posting{boss, w.review(payer, "a") + "/release", why} },
		"/admin/payout-reviews/{id}/refuse":  func() posting { return posting{boss, w.review(payer, "b") + "/refuse", why} },
		"/admin/gpus/{uuid}/award": func() posting {
			var uuid string
			var host id.Host
			if err := w.db.Pool.QueryRow(w.t.Context(), "SELECT g.uuid, g.host_id FROM gpu g JOIN host h ON "+
				"h.id = g.host_id WHERE h.org_id = $1 AND h.state <> 'retired' LIMIT 1", seller).Scan(&uuid, &host); err != nil {
				w.t.Fatal(err)
			}
			return posting{boss, "/admin/gpus/" + uuid + "/award",
				`{"host_id":"` + host.String() + `","reason":"photographs"}`}
		},
		"/admin/orgs/{id}/allow-refund": func() posting {
			return posting{boss, "/admin/orgs/" + payer.String() + "/allow-refund", `{"amount":"25.00","reason":"leaves us"}`}
		},
		"/admin/orgs/{id}/forgive-disputes": func() posting {
			w.dispute("dp_lost", payer, "in_none", "dispute", "lost")
			return posting{boss, "/admin/orgs/" + payer.String() + "/forgive-disputes", why}
		},
		"/admin/orgs/{id}/invoices/{invoice}/write-off": func() posting {
			w.invoice(payer, "in_open", "open")
			return posting{boss, "/admin/orgs/" + payer.String() + "/invoices/in_open/write-off", why}
		},
		"/admin/orgs/{id}/invoices/{invoice}/bank-payments": func() posting {
			w.invoice(payer, "in_paid", "paid")
			w.lose(payer, "in_paid")
			return posting{boss, "/admin/orgs/" + payer.String() + "/invoices/in_paid/bank-payments",
				`{"amount":"1.00","reference":"T 1","reason":"a test"}`}
		},
		"/admin/refunds/{id}/release": func() posting {
			w.dispute("re_1", payer, "in_1", "refund", "open")
			return posting{boss, "/admin/refunds/re_1/release", why}
		},
		"/admin/books/proposals": func() posting {
			return posting{boss, "/admin/books/proposals", proposed}
		},
		"/admin/books/proposals/{id}/approve": func() posting {
			w.withhold(5 * money.Unit)
			return posting{boss, w.proposal("approver") + "/approve", why}
		},
		"/admin/books/proposals/{id}/refuse": func() posting {
			return posting{boss, w.proposal("refuser") + "/refuse", why}
		},
		"/admin/tax/remittances": func() posting {
			w.exec(`INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason, name, ppm, net, tax, currency,
				created_at) VALUES ('old', $1, 'topup', '', 'DE', '', 'home', 'VAT', 190000, 100000000000, 19000000000, 'USD',
				'2025-02-03')`, payer)
			return posting{boss, "/admin/tax/remittances",
				`{"period":"2025-Q1","country":"DE","amount":"10.00","reason":"transfer 17"}`}
		},
	}, renter
}

// proposed moves withheld earnings to where they are an income.
const proposed = `{"debit":"earnings_withheld","credit":"breakage","amount":"5.00","reason":"refused a year ago"}`

// proposal lets another admin propose an entry, and returns its path in the API.
func (w *world) proposal(admin string) string {
	w.t.Helper()
	return "/admin/books/proposals/" +
		w.want(w.call(w.boss(admin), "POST", "/api/v1/admin/books/proposals", proposed), 201, "").text("id")
}

// withhold books refused earnings.
func (w *world) withhold(n money.Nano) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "payout_refuse", Key: "withheld", Transfers: []ledger.Transfer{
			{Debit: ledger.StripeClearing("USD"), Credit: ledger.Withheld("USD"), Amount: n}}})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) orgOf(token string) id.Org {
	w.t.Helper()
	o, err := id.Parse[id.Org](w.want(w.call(token, "GET", "/api/v1/me", nil), 200, "").text("org.id"))
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// onboard makes the operator's payout account ready.
func (w *world) onboard(operator string) {
	w.t.Helper()
	w.want(w.call(operator, "POST", "/api/v1/payouts/account", `{"country":"DE"}`), 201, "")
	w.stripe.Accounts.Onboard(w.stripe.Accounts.IDs()[0])
	for _, d := range w.stripe.Webhooks.Deliveries() {
		w.want(w.call("", "POST", "/stripe/webhook", string(d.Payload), "Stripe-Signature", d.Signature), 200, "")
	}
	if _, err := w.in.Process(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// earn moves money from a renter to an operator, where it matures at once.
func (w *world) earn(from, to id.Org, key string, n money.Nano) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: key, Transfers: []ledger.Transfer{
			{Debit: ledger.Wallet(from, "USD"), Credit: ledger.HostPending(to, "USD"), Amount: n}}})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := payout.Mature(w.t.Context(), w.db, -time.Hour); err != nil {
		w.t.Fatal(err)
	}
}

// review puts earnings of a new operator, who is a member of the renter's organisation, into review. It returns the
// review's path in the API.
func (w *world) review(renter id.Org, name string) string {
	w.t.Helper()
	host := w.orgOf(w.user("host-" + name))
	w.exec("INSERT INTO membership (org_id, user_id, role) SELECT $1, user_id, 'member' FROM membership WHERE org_id = $2",
		renter, host)
	w.earn(renter, host, "review-"+name, 42*money.Unit)
	var review id.PayoutReview
	if err := w.db.Pool.QueryRow(w.t.Context(), "SELECT id FROM payout_review WHERE host_org_id = $1", host).
		Scan(&review); err != nil {
		w.t.Fatal(err)
	}
	return "/admin/payout-reviews/" + review.String()
}

// invoice writes a postpaid invoice of 10.00.
func (w *world) invoice(org id.Org, name, state string) {
	w.t.Helper()
	w.exec(`INSERT INTO postpaid_invoice (id, org_id, currency, number, state, period_start, period_end, charged, due,
		total, metered, attempts, made_at) VALUES ($2, $1, 'USD', 'N-' || $2, $3, now(), now(), 0, 1000, 1000, 1000, 1,
		now())`, org, name, state)
}

// dispute writes a dispute or a refund at Stripe, of 10.00.
func (w *world) dispute(name string, org id.Org, invoice, kind, state string) {
	w.t.Helper()
	w.exec(`INSERT INTO dispute (id, org_id, invoice_id, kind, amount, held, currency, reason, state, paid_at)
		VALUES ($1, $2, $3, $4, 10000000000, 0, 'USD', 'fraudulent', $5, now())`, name, org, invoice, kind, state)
}
