package market_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// take rents a quote: its claims become those of leases.
func (w *world) take(org id.Org, quote id.Quote) (market.Quote, error) {
	q, err := w.m.GetQuote(w.t.Context(), w.of(org), quote)
	if err != nil {
		return q, err
	}
	err = w.tx(func(ctx context.Context, tx *db.Tx) error {
		var now time.Time
		b := &pgx.Batch{}
		locked := w.m.QueueQuote(b, q, org)
		db.ReadNow(b, &now)
		if err := tx.Send(ctx, b); err != nil {
			return err
		}
		if q.Placement, err = locked.Rentable(now); err != nil {
			return err
		}
		b = &pgx.Batch{}
		market.QueueRented(b, q.ID, id.New[id.Cluster]())
		sets := q.Placement.ClaimSets(id.New[id.Cluster](), func(int) id.Lease { return id.New[id.Lease]() })
		host.QueueLeaseClaims(b, tx, nil, sets, false)
		return tx.Send(ctx, b)
	})
	return q, market.ClaimFailure(err, true)
}

func TestAQuoteHoldsItsGPUsUntilItIsRented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 4, "2.00")
	w.host("b", 4, "3.00")
	renter := w.renter(money.Unit)
	s := spec(2, 4, "gpu_model=H100")
	s.Env = map[string]string{"TOKEN": "hunter2"}
	s.RegistryAuth = &market.RegistryAuth{Username: "u", Password: "hunter3"}
	q, err := w.quote(w.m, renter, s)
	if err != nil {
		t.Fatal(err)
	}
	if q.Placement.Rate != 20_000_000 || w.claims(host.ForQuote) != 8 || w.free(w.replica()) != 0 {
		t.Fatalf("%s per hour, %d claims, %d free", q.Placement.Rate, w.claims(host.ForQuote), w.free(w.replica()))
	}
	if ttl := q.ExpiresAt.Sub(q.CreatedAt).Seconds(); ttl < 60 || ttl > 120 {
		t.Errorf("held for %v s", ttl)
	}
	if _, err := w.rent(w.replica(), spec(1, 1, "")); !fault.Is(err, fault.NoCapacity) {
		t.Errorf("somebody else rents a quoted GPU: %v", err)
	}
	got, err := w.m.GetQuote(t.Context(), w.of(renter), q.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, got.Spec); d != "" {
		t.Errorf("the spec changed: %s", d)
	}
	var stored []byte
	if err := w.d.Pool.QueryRow(t.Context(), "SELECT convert_to(spec::text || placement::text || encode(secrets, "+
		"'escape'), 'UTF8') FROM quote").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored, []byte("hunter")) {
		t.Error("secrets are stored in the clear")
	}
	if _, err := w.m.GetQuote(t.Context(), w.of(w.org()), q.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org sees it: %v", err)
	}
	if _, err := w.take(w.org(), q.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org takes it: %v", err)
	}
	taken, err := w.take(renter, q.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(gpus(taken.Placement), gpus(q.Placement)) || taken.Placement.Rate != q.Placement.Rate ||
		taken.Spec.Env["TOKEN"] != "hunter2" {
		t.Errorf("%+v", taken)
	}
	if l, q := w.claims(host.ForLease), w.claims(host.ForQuote); l != 8 || q != 0 {
		t.Errorf("%d lease claims, %d quote claims", l, q)
	}
	if _, err := w.take(renter, q.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("rented twice: %v", err)
	}
	if q, err := w.m.ReturnQuote(t.Context(), w.of(renter), q.ID); err != nil || q.State != market.QuoteRented ||
		w.claims(host.ForLease) != 8 {
		t.Errorf("%v %v", q.State, err)
	}
}

func TestAQuoteGivesItsGPUsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 4, "2.00")
	renter := w.renter(money.Unit)
	q, err := w.quote(w.m, renter, spec(1, 4, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.m.ReturnQuote(t.Context(), w.of(w.org()), q.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org returns it: %v", err)
	}
	for range 2 {
		if q, err = w.m.ReturnQuote(t.Context(), w.of(renter), q.ID); err != nil || q.State != market.QuoteReturned {
			t.Fatalf("%v %v", q.State, err)
		}
	}
	if _, err := w.take(renter, q.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	// An expired one gives way by itself, before anybody sweeps.
	if q, err = w.quote(w.m, renter, spec(1, 4, "")); err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE quote SET expires_at = clock_timestamp() WHERE id = $1", q.ID)
	w.exec("UPDATE gpu_claim SET expires_at = clock_timestamp() WHERE ref = $1 AND ended_at IS NULL", q.ID.UUID())
	if got, err := w.m.GetQuote(t.Context(), w.of(renter), q.ID); err != nil || got.State != market.QuoteExpired {
		t.Errorf("%v %v", got.State, err)
	}
	if _, err := w.take(renter, q.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if _, err := w.rent(w.m, spec(1, 4, "")); err != nil {
		t.Fatal(err)
	}
	if n, err := w.m.ExpireQuotes(t.Context()); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if n, err := w.m.ExpireQuotes(t.Context()); n != 0 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if w.claims(host.ForLease) != 4 {
		t.Error("the sweep took the new renter's GPUs")
	}
}

func TestQuoteLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 8, "2.00")
	if _, err := w.quote(w.m, w.org(), spec(1, 1, "")); !fault.Is(err, fault.InsufficientFunds) {
		t.Errorf("without credit: %v", err)
	}
	// 60 s of 2.00 per hour are 0.033333334 rounded up.
	if _, err := w.quote(w.m, w.renter(33_333_333), spec(1, 1, "")); !fault.Is(err, fault.InsufficientFunds) {
		t.Errorf("one nano-unit short: %v", err)
	}
	if _, err := w.quote(w.m, w.renter(33_333_334), spec(1, 1, "")); err != nil {
		t.Errorf("just enough: %v", err)
	}
	s := spec(1, 1, "")
	budget := money.Nano(33_333_333)
	s.Budget = &budget
	if _, err := w.quote(w.m, w.renter(money.Unit), s); !fault.Is(err, fault.Invalid) {
		t.Errorf("budget below 60 s: %v", err)
	}
	renter := w.renter(money.Unit)
	var last market.Quote
	for range market.MaxOpenQuotes {
		var err error
		if last, err = w.quote(w.m, renter, spec(1, 1, "")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.quote(w.m, renter, spec(1, 1, "")); !fault.Is(err, fault.QuotaExceeded) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := w.m.ReturnQuote(t.Context(), w.of(renter), last.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.quote(w.m, renter, spec(1, 1, "")); err != nil {
		t.Errorf("after one was returned: %v", err)
	}
}

// Storage that is owed comes before a quote, and after a day nothing is quoted until it is paid.
func TestQuote_StorageIsOwed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 8, "2.00")
	renter := w.renter(money.Unit)
	billingtest.OweStorage(t, w.d, renter, money.Unit-33_333_333, time.Hour)
	if _, err := w.quote(w.m, renter, spec(1, 1, "")); !fault.Is(err, fault.InsufficientFunds) {
		t.Errorf("without credit beyond what is owed: %v", err)
	}
	renter = w.renter(money.Unit)
	billingtest.OweStorage(t, w.d, renter, money.Unit-33_333_334, 23*time.Hour)
	if _, err := w.quote(w.m, renter, spec(1, 1, "")); err != nil {
		t.Errorf("just enough: %v", err)
	}
	renter = w.renter(money.Unit)
	billingtest.OweStorage(t, w.d, renter, 120_000_001, 25*time.Hour)
	_, err := w.quote(w.m, renter, spec(1, 1, ""))
	if !fault.Is(err, fault.InsufficientFunds) || !strings.Contains(err.Error(), "You owe 0.120000001 USD") {
		t.Errorf("owed for more than a day: %v", err)
	}
}

func TestAnOrgHoldsAGPUForTenMinutesAnHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "2.00")
	renter := w.renter(money.Unit)
	quotes := 0
	for ; ; quotes++ {
		q, err := w.quote(w.m, renter, spec(1, 1, ""))
		if fault.Is(err, fault.QuotaExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		// As if it had run its whole time, some minutes ago.
		w.exec("UPDATE quote SET created_at = clock_timestamp() - interval '20 minutes', expires_at = clock_timestamp() - "+
			"interval '1110 seconds' WHERE id = $1", q.ID)
		w.exec("UPDATE gpu_claim SET expires_at = clock_timestamp() WHERE ref = $1 AND ended_at IS NULL", q.ID.UUID())
	}
	if quotes != 6 { // 6 × 90 s = 540 s; a seventh could make it 630 s
		t.Errorf("%d quotes of 90 s", quotes)
	}
	if _, err := w.quote(w.m, w.renter(money.Unit), spec(1, 1, "")); err != nil {
		t.Errorf("another org: %v", err)
	}
}

// TestQuotesKeepDisk: what a quote promised of the host's disk is not sold again under it.
func TestQuotesKeepDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 2, "2.00")
	s := spec(1, 1, "")
	s.DiskGB = 300
	if _, err := w.quote(w.m, w.renter(money.Unit), s); err != nil {
		t.Fatal(err)
	}
	if _, err := w.rent(w.replica(), s); !fault.Is(err, fault.NoCapacity) {
		t.Errorf("%v", err)
	}
	s.DiskGB = 200
	if _, err := w.rent(w.replica(), s); err != nil {
		t.Error(err)
	}
}

func TestAQuoteOfAHostThatWentAwayIsAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "2.00")
	renter := w.renter(money.Unit)
	q, err := w.quote(w.m, renter, spec(1, 1, ""))
	if err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE gpu SET health = 'quarantined'")
	if _, err := w.take(renter, q.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	w.exec("UPDATE gpu SET health = 'healthy'")
	w.exec("UPDATE host_status SET connected = false")
	if _, err := w.take(renter, q.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	w.exec("UPDATE host_status SET connected = true")
	if _, err := w.take(renter, q.ID); err != nil {
		t.Errorf("%v", err)
	}
}

func TestQuote_SSHKeyOfAnotherOrganisationIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "1.00")
	s := spec(1, 1, "")
	s.SSHKeyIDs = []id.SSHKey{id.New[id.SSHKey]()}
	_, err := w.quote(w.m, w.renter(money.Unit), s)
	if f := fault.From(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 ||
		f.Fields[0].Location != "ssh_key_ids[0]" {
		t.Errorf("%+v, want invalid at ssh_key_ids[0]", f)
	}
	if n := w.claims(host.ForQuote); n != 0 {
		t.Errorf("%d GPUs are claimed for it", n)
	}
}

func TestQuote_OthersAreAlwaysFasterIsNoCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "1.00")
	w.exec("CREATE FUNCTION taken() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	w.exec("CREATE TRIGGER taken BEFORE INSERT ON gpu_claim FOR EACH ROW EXECUTE FUNCTION taken()")
	_, err := w.quote(w.m, w.renter(money.Unit), spec(1, 1, ""))
	if f := fault.From(err); f == nil || f.Kind != fault.NoCapacity || f.Message == "" {
		t.Errorf("%+v, want no_capacity", f)
	}
}

func TestQuote_RepeatedWithOneKeyMakesOneQuote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "1.00")
	renter := w.of(w.renter(money.Unit))
	once := idem.Request{Principal: renter.Key(), Method: "POST", Path: "/quotes", Key: "k", BodyHMAC: []byte("body")}
	once.Render = func(result any) (int, any) { return 201, result.(market.Quote).ID }
	first, done, err := w.m.Quote(t.Context(), renter, spec(1, 1, ""), once)
	if err != nil || done.Replayed {
		t.Fatalf("first: %+v, %v", done, err)
	}
	// Nothing is free now, and the repeated request is answered nevertheless.
	_, again, err := w.m.Quote(t.Context(), renter, spec(1, 1, ""), once)
	if err != nil || !again.Replayed || string(again.Body) != `"`+first.ID.String()+`"` {
		t.Errorf("again: %+v %s, %v", again, again.Body, err)
	}
	if n := w.claims(host.ForQuote); n != 1 {
		t.Errorf("%d GPUs are claimed, want 1", n)
	}
}

// The same credit does not back several quotes.
func TestQuotesNeedCreditTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 4, "3.00")
	renter := w.renter(money.Unit / 8) // 60 s of two GPUs cost 0.10
	q, err := w.quote(w.m, renter, spec(1, 2, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.quote(w.m, renter, spec(1, 1, "")); !fault.Is(err, fault.InsufficientFunds) {
		t.Fatalf("a second quote for the same credit: %v", err)
	}
	if _, err := w.m.ReturnQuote(t.Context(), w.of(renter), q.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.quote(w.m, renter, spec(1, 1, "")); err != nil {
		t.Errorf("after the first was returned: %v", err)
	}
}

// However many organisations one person has, their quotes hold GPUs for a bounded time only, and never all GPUs of a
// model.
func TestQuotesOfOnePersonLeaveTheMarket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := markettest.New(w.World, market.Config{Starts: fairness.StartRules{Window: 6 * time.Hour, Free: 5_400,
		Reserve: fairness.StartReserve, MarketPPM: 250_000, MarketLeast: 64}})
	for _, n := range []string{"a", "b", "c", "d"} {
		w.host(n, 8, "2.00")
	}
	w.Unguarded("INSERT INTO operator_earning (host_org_id, currency, payer_org_id, earned, returned, last_at) VALUES "+
		"($1, $2, $3, 1, 0, clock_timestamp())", w.operator, currency, w.tenant)
	honest, person := w.renter(1000*money.Unit), w.SignUp("person").User
	w.Unguarded(`INSERT INTO operator_earning_hour (host_org_id, currency, payer_org_id, hour, earned, last_at, first_id, last_id)
		VALUES ($1, $2, $3, clock_timestamp(), 10000000000, clock_timestamp(), $3, $3)`, w.operator, currency, honest)
	var orgs []id.Org
	for range 7 {
		orgs = append(orgs, w.renter(25*money.Unit))
		w.exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", orgs[len(orgs)-1], person)
	}
	const every = 90
	held := 0
	for step := range 40 { // an hour
		for _, nodes := range []int{4, 2} {
			if _, err := w.quote(m, orgs[step%len(orgs)], spec(nodes, 8, "")); err == nil {
				held += nodes * 8 * every
				break
			} else if f := fault.From(err); f == nil || f.Extra["limit"] != "start_quota" {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		q, err := w.quote(m, honest, spec(2, 8, ""))
		if err != nil {
			t.Fatalf("one that pays is refused at step %d: %v", step, err)
		}
		if _, err := m.ReturnQuote(t.Context(), w.of(honest), q.ID); err != nil {
			t.Fatal(err)
		}
		w.exec("UPDATE quote SET created_at = created_at - interval '90 seconds', expires_at = expires_at - interval '90 " +
			"seconds', ended_at = ended_at - interval '90 seconds'")
		w.exec("UPDATE gpu_claim SET expires_at = expires_at - interval '90 seconds' WHERE ended_at IS NULL")
		w.exec("UPDATE gpu_claim SET ended_at = clock_timestamp(), end_reason = 'expired' WHERE ended_at IS NULL AND " +
			"expires_at <= clock_timestamp()")
	}
	if held < 5_400 || held >= 5_400+16*every {
		t.Errorf("seven organisations of one person held %d GPU-seconds", held)
	}
}
