package erasure_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// stranger is an organisation that someone set up with the e-mail address of another person.
type stranger struct {
	t        *testing.T
	d        *db.DB
	accounts *account.Accounts
	p        account.Principal
	mail     []account.Letter
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	d := dbtest.New(t)
	x := &stranger{t: t, d: d}
	world := fleettest.New(t, d)
	clusters := cluster.New(d, markettest.New(world, market.Config{}), nil, cluster.Config{
		Currency: fleettest.Currency, Box: world.Box(),
	})
	log := slog.New(slog.DiscardHandler)
	client := billingtest.New(t, d).Stripe(nil, 0).Client
	out, in := outbox.New(d, client, log), events.New(d, client, log)
	payments, err := payment.New(d, out, in, payment.Config{
		Currency: fleettest.Currency, ReturnURL: "https://muster.test",
	}, log)
	x.must(err)
	payouts, err := payout.New(d, out, in, payout.Config{
		Currency: fleettest.Currency, PageURL: "https://muster.test/payouts",
	}, log)
	x.must(err)
	x.accounts = account.New(d, account.Config{
		HashMemoryKiB: 64,
		PublicURL:     "https://muster.test",
		Post: func(_ context.Context, _ *db.Tx, l account.Letter) error {
			x.mail = append(x.mail, l)
			return nil
		},
		TakenOver: erasure.Takeover{
			Clusters: clusters, Hosts: host.New(d, nil), Cards: payments.Cards, Payouts: payouts,
		}.End,
		RightsLost: host.EndEnrollments,
	})
	_, err = x.accounts.SignUps.Register(t.Context(), account.SignUp{Email: email, Password: password, Name: "Mallory"})
	x.must(err)
	_, x.p, err = x.accounts.Sessions.SignIn(t.Context(), account.SignIn{Email: email, Password: password})
	x.must(err)
	return x
}

func (x *stranger) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *stranger) exec(sql string, args ...any) {
	x.t.Helper()
	_, err := x.d.Pool.Exec(x.t.Context(), sql, args...)
	x.must(err)
}

// leave sets up all that a stranger may leave.
func (x *stranger) leave() {
	x.t.Helper()
	p := x.p
	p.Scopes = account.Scopes()
	_, _, err := x.accounts.Tokens.Issue(x.t.Context(), p, account.NewToken{Name: "t", Scopes: account.Scopes()})
	x.must(err)
	_, err = x.accounts.Legals.Set(x.t.Context(), p, account.Legal{
		Name: "Mallory Ltd", Address: []string{"1 High Street"}, Country: "GB",
	})
	x.must(err)
	fleettest.Token(x.t, x.d, p.Org, p.User, "later")
	fleettest.Enroll(x.t, x.d, p.Org, p.User, 1)
	fleettest.Activate(x.t, x.d, fleettest.Enroll(x.t, x.d, p.Org, p.User, 2))
	operator, owner := fleettest.Org(x.t, x.d)
	h := fleettest.Enroll(x.t, x.d, operator, owner, 3)
	cl, _ := fleettest.Lease(x.t, x.d, h.Host, p.Org)
	x.exec("INSERT INTO volume_mount (cluster_id, volume_id, mode) VALUES ($1, $2, 'rw')", cl,
		kept(x.t, x.d, p, "mounted"))
	kept(x.t, x.d, p, "kept")
	x.exec("INSERT INTO ssh_key (id, org_id, user_id, name, public_key, fingerprint) VALUES ($1, $2, $3, 'm', $4, "+
		"'SHA256:x')", id.New[id.SSHKey](), p.Org, p.User, key)
	x.exec("INSERT INTO stripe_customer (org_id, customer_id, payment_method) VALUES ($1, 'cus_1', 'pm_1')", p.Org)
	x.exec("INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year) VALUES ($1, $2, 'pm_1', "+
		"'visa', '4242', 1, 2030)", id.New[id.Card](), p.Org)
	x.exec("INSERT INTO auto_topup (org_id, user_id, enabled, threshold, amount, daily_cap) VALUES ($1, $2, true, 1, "+
		"10000000000, 10000000000)", p.Org, p.User)
	x.exec("INSERT INTO template (org_id, name, title, description, spec, created_by) VALUES ($1, 't', 't', '', '{}', $2)",
		p.Org, p.User)
	x.exec("INSERT INTO payout_account (org_id, country, stripe_account, next_at) VALUES ($1, 'DE', 'acct_1', "+
		"clock_timestamp())", p.Org)
}

// left returns what acts in the organisation's name or gives access to it, by kind.
func (x *stranger) left() map[string]int {
	x.t.Helper()
	out := map[string]int{}
	for kind, rows := range map[string]string{
		"sessions":         "session WHERE org_id = $1",
		"tokens":           "api_token WHERE org_id = $1 AND revoked_at IS NULL",
		"SSH keys":         "ssh_key WHERE org_id = $1",
		"enrolment tokens": "enrollment_token WHERE org_id = $1 AND used_at IS NULL AND expires_at > now()",
		"hosts":            "host WHERE org_id = $1 AND state IN ('enrolled', 'active')",
		"clusters":         "cluster WHERE org_id = $1 AND state IN ('provisioning', 'running', 'degraded')",
		"legal details":    "org_legal WHERE org_id = $1",
		"cards":            "payment_card WHERE org_id = $1 AND removed_at IS NULL",
		"auto top-up":      "auto_topup WHERE org_id = $1 AND enabled",
		"volumes":          "volume WHERE org_id = $1 AND deleted_at IS NULL",
		"stored bytes":     "data_domain WHERE org_id = $1 AND bytes > 0",
		"templates":        "template WHERE org_id = $1",
		"payouts":          "payout_account WHERE org_id = $1 AND stopped = ''",
	} {
		var n int
		x.must(x.d.Pool.QueryRow(x.t.Context(), "SELECT count(*) FROM "+rows, x.p.Org).Scan(&n))
		if n > 0 {
			out[kind] = n
		}
	}
	return out
}

// reset sets a new password with a link that is mailed to the address.
func (x *stranger) reset() {
	x.t.Helper()
	x.mail = nil
	x.must(x.accounts.Passwords.SendReset(x.t.Context(), email, address))
	_, rest, _ := strings.Cut(x.mail[0].Body, "/reset-password/")
	x.must(x.accounts.Passwords.Reset(x.t.Context(), rest[:43], "a password of my own", address, false))
}

// Whatever someone set up with another person's e-mail address ends when that person sets a password by mail, or waits
// until it is confirmed. The owner is notified.
func TestTakeover_EndsAccess(t *testing.T) {
	t.Parallel()
	x := newStranger(t)
	x.leave()
	want := map[string]int{
		"sessions": 1, "tokens": 1, "SSH keys": 1, "enrolment tokens": 1, "hosts": 2, "clusters": 1, "legal details": 1,
		"cards": 1, "auto top-up": 1, "payouts": 1, "templates": 1,
		"volumes": 2, "stored bytes": 2,
	}
	if diff := cmp.Diff(want, x.left()); diff != "" {
		t.Fatalf("before (-want +got):\n%s", diff)
	}
	x.reset()
	if diff := cmp.Diff(map[string]int{}, x.left()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	var n int
	x.must(x.d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND dedupe_key LIKE "+
		"'taken_over:%'", x.p.Org).Scan(&n))
	if n != 1 {
		t.Errorf("%d notices about it", n)
	}
}

// A forgotten password of a verified account ends sessions only.
func TestTakeover_VerifiedAccountKept(t *testing.T) {
	t.Parallel()
	x := newStranger(t)
	x.leave()
	x.exec("UPDATE app_user SET email_verified_at = clock_timestamp() WHERE id = $1", x.p.User)
	want := x.left()
	delete(want, "sessions")
	x.reset()
	if diff := cmp.Diff(want, x.left()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
