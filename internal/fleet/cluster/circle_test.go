package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// shippedRules are the defaults of the server.
var shippedRules = fairness.StartRules{Window: 6 * time.Hour, Free: 10_800, Reserve: fairness.StartReserve,
	MarketPPM: 250_000, MarketLeast: 64}

// orgOf returns a user who acts for a new organisation with money, of which it is a member.
func (w *world) orgOf(user account.Principal, role account.Role) account.Principal {
	w.t.Helper()
	user.Org = w.Org("o")
	w.join(user.Org, user, role)
	w.Fund(user.Org, 100*money.Unit)
	return user
}

func (w *world) join(org id.Org, user account.Principal, role account.Role) {
	w.t.Helper()
	w.exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, $3) ON CONFLICT (org_id, user_id) DO UPDATE "+
		"SET role = excluded.role", org, user.User, string(role))
}

// saveCard saves a card for an organisation.
func (w *world) saveCard(org id.Org, number string) {
	w.t.Helper()
	card := id.New[id.Card]()
	w.exec("INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year, fingerprint) VALUES "+
		"($1, $2, $3, 'visa', '4242', 1, 2030, $4)", card, org, card.String(), number)
}

// held records that a start of an organisation held GPUs without paying, until a minute ago.
func (w *world) held(org id.Org, gpuSeconds int64) {
	w.t.Helper()
	w.exec("INSERT INTO start_hold (org_id, ended_at, held_ms, gpu_ms, value) VALUES ($1, clock_timestamp() - interval "+
		"'1 minute', $2, $2, $3)", org, gpuSeconds*1000, int64(fairness.StartValue(price, gpuSeconds*1000)))
}

// Organisations of one person, or with one card, have one quota of starts. What is paid counts for it too, and what an
// organisation has paid for itself is its own: others who hold too much cannot take that from it.
func TestStartQuota_OneForACircle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 8, starts: shippedRules})
	w.Unguarded("DELETE FROM operator_earning")
	ada, eve := w.SignUp("ada"), w.SignUp("eve")
	first, second := w.orgOf(ada, account.RoleOwner), w.orgOf(ada, account.RoleMember)
	third, other := w.orgOf(eve, account.RoleOwner), w.orgOf(w.SignUp("bob"), account.RoleOwner)
	w.saveCard(second.Org, "card")
	w.saveCard(third.Org, "card")
	w.held(first.Org, 12_000)
	may := func(when string, p account.Principal, want bool) {
		t.Helper()
		c, _, err := w.clusters[0].Rentals.Rent(w.ctx, p, cluster.RentRequest{Spec: spec(1, 1)}, idem.Request{})
		if f := fault.From(err); (err == nil) != want || err != nil && (f == nil || f.Extra["limit"] != "start_quota") {
			t.Fatalf("%s: %v", when, err)
		}
		if err == nil {
			w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, p, c.ID)))
			w.exec("UPDATE start_hold SET gpu_ms = 0, value = 0 WHERE cluster_id = $1", c.ID)
		}
	}
	may("a member of the one that held", second, false)
	may("one that shares a card with it", third, false)
	may("another person", other, true)
	w.exec("DELETE FROM membership WHERE org_id = $1 AND user_id = $2", second.Org, ada.User)
	may("after leaving", second, false)
	w.paid(third, 10*money.Unit)
	may("another one of the circle has paid for more", second, true)
	w.Unguarded("DELETE FROM operator_earning_hour")
	w.held(first.Org, 1_000_000)
	w.paid(second, money.Unit)
	may("it has paid for its own starts", second, true)
	may("that covers no other one", third, false)
	w.Unguarded("DELETE FROM operator_earning_hour")
	w.exec("UPDATE circle_link SET ended_at = ended_at - interval '6 hours' WHERE ended_at IS NOT NULL")
	may("six hours after leaving", second, true)
}

// What a host gave back is not paid: a renter and a host with an understanding raise no quota at no cost.
func TestStartQuota_ReturnedIsNotPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 8, starts: shippedRules})
	c := w.runUp(spec(1, 8))
	w.ran(c, 59*time.Minute)
	for range 2 {
		w.must(w.hosts[0].sync(w.ctx, 0))
	}
	w.tick(c)
	w.reclaim(c, 0, 0)
	w.clean(c)
	wallet, err := ledger.Balance(w.ctx, w.d.Q, ledger.Wallet(w.renter.Org, usd))
	w.must(err)
	var earned int64
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT sum(earned)::bigint FROM operator_earning_hour WHERE payer_org_id = $1",
		w.renter.Org).Scan(&earned))
	if wallet != 1000*money.Unit || earned < int64(10*money.Unit) {
		t.Fatalf("the wallet has %s, hosts earned %s", wallet, money.Nano(earned))
	}
	p, err := w.d.Q.PaidLately(w.ctx, 6*3600, id.UUIDs(w.renter.Org)[0], usd)
	w.must(err)
	if p.Lately != 0 || p.Week != 0 || p.OwnLately != 0 || p.OwnWeek != 0 {
		t.Errorf("%+v count as paid for starts", p)
	}
	f, err := w.d.Q.CreditFacts(w.ctx, w.renter.Org, id.New[id.Lease](), w.operator.Org)
	w.must(err)
	if f.Charged != 0 {
		t.Errorf("%s count as charged for automatic credits", money.Nano(f.Charged))
	}
}

// Quotes hold GPUs for nothing as starts do: they count in the quota and in the part of the market, until they become
// clusters.
func TestStartQuota_Quotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 8, starts: shippedRules})
	w.Unguarded("INSERT INTO operator_earning (host_org_id, currency, payer_org_id, earned, returned, last_at) VALUES "+
		"($1, $2, $3, 1, 0, clock_timestamp())", w.operator.Org, usd, w.SignUp("earlier").Org)
	m := quotingMarket(w)
	a, b := w.orgOf(w.SignUp("a"), account.RoleOwner), w.orgOf(w.SignUp("b"), account.RoleOwner)
	quote := func(p account.Principal, gpus int) (market.Quote, error) {
		q, _, err := m.Quote(w.ctx, p, spec(1, gpus), idem.Request{})
		return q, err
	}
	q, err := quote(a, 6)
	w.must(err)
	_, err = quote(b, 3) // more than half of 16
	if f := fault.From(err); f == nil || f.Extra["scope"] != "new_organisations" || f.Extra["free_gpus"] != int64(2) {
		t.Fatalf("a quote beyond the part of the market: %v", err)
	}
	if f := w.refusedStart(b, spec(1, 3)); f == nil || f.Extra["free_gpus"] != int64(2) {
		t.Fatalf("a start beside quotes beyond the part of the market: %v", f)
	}
	w.paid(b, 100*money.Unit)
	paid, err := quote(b, 8)
	w.must(err)
	_, err = m.ReturnQuote(w.ctx, b, paid.ID)
	w.must(err)
	// A rent of the quote is not refused because of the quote.
	w.exec("UPDATE quote SET gpu_ids = gpu_ids || gpu_ids WHERE id = $1", q.ID) // as if it held all of the part
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, a, cluster.RentRequest{Quote: q.ID}, idem.Request{}); err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE quote SET created_at = created_at - interval '10 minutes', expires_at = expires_at - interval '10 "+
		"minutes', ended_at = NULL WHERE id = $1", q.ID)
	w.exec("UPDATE cluster SET start_from = clock_timestamp() - interval '30 minutes' WHERE org_id = $1", a.Org)
	if _, err = quote(a, 1); !fault.Is(err, fault.RateLimited) { // 6 × 1800 + 12 × 90 GPU-seconds
		t.Errorf("a quote beyond the quota: %v", err)
	}
}

// quotingMarket is a market that limits quotes.
func quotingMarket(w *world) *market.Market {
	w.t.Helper()
	m, err := market.New(w.d, w.Box(), market.Config{Currency: usd, AllowSimulated: true, Starts: shippedRules})
	w.must(err)
	return m
}

// Ten hosts of one account that fall silent together excuse no one. Hosts of many operators do, once in a while.
func TestMassSilence_OneAccountExcusesNoLoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 6, gpus: 1})
	var clusters []cluster.Cluster
	for range 6 {
		clusters = append(clusters, w.runUp(spec(1, 1)))
	}
	admin := w.SignUp("admin")
	w.join(admin.Org, admin, account.RoleOwner)
	w.exec("UPDATE app_user SET admin = true WHERE id = $1", admin.User)
	w.exec("UPDATE host_status SET nats_server = 'n1', last_sync_at = clock_timestamp() - interval '40 seconds'")
	pulse := func() (gaps, notices int) {
		t.Helper()
		w.must(host.NewReplicas(w.d).RecordPulse(w.ctx, host.Pulse{Listener: "n1", SentMS: time.Now().UnixMilli()}))
		w.must(w.d.Pool.QueryRow(w.ctx, "SELECT (SELECT count(*) FROM deaf_gap WHERE cause = 'mass_silence'), "+
			"(SELECT count(*) FROM notice WHERE dedupe_key LIKE 'mass_silence:%')").Scan(&gaps, &notices))
		return gaps, notices
	}
	if gaps, _ := pulse(); gaps != 0 {
		t.Fatal("the hosts of one operator make a gap")
	}
	var owners []account.Principal
	for i := range clusters {
		owners = append(owners, w.SignUp(fmt.Sprint("operator", i)))
		w.exec("UPDATE host SET org_id = $1 WHERE id = $2", owners[i].Org, clusters[i].Nodes[0].HostID)
	}
	for _, o := range owners[:2] {
		w.saveCard(o.Org, "card")
	}
	if gaps, _ := pulse(); gaps != 0 {
		t.Fatal("two linked operators have more than a fifth of the silent hosts")
	}
	w.exec("DELETE FROM circle_link")
	if gaps, notices := pulse(); gaps != 1 || notices != 1 {
		t.Fatalf("the hosts of six operators: %d gaps, %d notices", gaps, notices)
	}
	if gaps, _ := pulse(); gaps != 1 {
		t.Fatal("the gap is extended")
	}
	w.exec("UPDATE deaf_gap SET from_ms = from_ms - 2000000, to_ms = to_ms - 2000000")
	if gaps, _ := pulse(); gaps != 2 {
		t.Fatal("no gap half an hour later")
	}
}
