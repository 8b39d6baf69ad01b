package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// sell puts a host of n GPUs of the visitor's own on the market.
func (b *browser) sell(n int) {
	b.t.Helper()
	var org id.Org
	var user id.User
	err := b.db.Pool.QueryRow(b.t.Context(), "SELECT o.id, u.id FROM org o, app_user u").Scan(&org, &user)
	if err != nil {
		b.t.Fatal(err)
	}
	agent := fleettest.Enroll(b.t, b.db, org, user, n)
	fleettest.Activate(b.t, b.db, agent)
	price := money.Micro(2_000_000)
	err = b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return b.m.SyncOffers(ctx, tx, agent.Host)
	})
	if err == nil {
		err = b.m.ChangeHost(b.t.Context(), account.Principal{Org: org, User: user}, agent.Host,
			market.HostChange{Terms: market.Terms{Price: &price}})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestThePageSaysThatNobodyRentsFromThemselves(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(4)
	res, doc := b.post("/quotes", url.Values{"nodes": {"1"}, "gpus": {"1"}, "image": {"x/y:1"}})
	if text := doc.Find("main").Text(); res.StatusCode != http.StatusConflict ||
		!strings.Contains(text, "not your own: an organisation cannot rent from itself") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

func TestAHostsPageTellsWhenItsPriceChanged(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	_, page := b.get("/hosts")
	host, ok := page.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	if !ok {
		t.Fatal(page.Find("main").Text())
	}
	_, page = b.post(host+"/terms", url.Values{"price_per_gpu_hour": {"3.25"}, "min_gpus": {"1"}, "max_hours": {""}})
	rows := page.Find("#prices tbody tr")
	if rows.Length() != 2 {
		t.Fatalf("%q", page.Find("#prices").Text())
	}
	if text := rows.First().Text(); !strings.Contains(text, "2.00") || !strings.Contains(text, "3.25") {
		t.Errorf("%q", text)
	}
	if text := rows.Last().Text(); !strings.Contains(text, "not listed") {
		t.Errorf("%q", text)
	}
}

func TestAHostsPageTellsWhatLeasesSent(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(1)
	_, page := b.get("/hosts")
	host, _ := page.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	if _, page = b.get(host); page.Find("#traffic").Length() != 0 {
		t.Error("a table of nothing")
	}
	var h id.Host
	var org id.Org
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id, org_id FROM host").Scan(&h, &org); err != nil {
		t.Fatal(err)
	}
	_, lease := fleettest.Lease(t, b.db, h, org)
	for _, sql := range []string{
		`INSERT INTO lease_traffic (lease_id, epoch, host_id, opened, refused, up_bytes, down_bytes, overlay_up_bytes,
			overlay_down_bytes)
			SELECT $1, 1, id, 42, 7, 3145728, 1024, 5000000000, 6000000000 FROM host`,
	} {
		if _, err := b.db.Pool.Exec(t.Context(), sql, lease); err != nil {
			t.Fatal(err)
		}
	}
	_, page = b.get(host)
	if up, down := page.Find("#traffic .c-rup").Text(), page.Find("#traffic .c-rdown").Text(); up != "5.0 GB" ||
		down != "6.0 GB" {
		t.Errorf("to ranks %q, from ranks %q", up, down)
	}
	if text := page.Find("#data").Text(); !strings.Contains(text, "to the internet 3.1 MBbetween ranks 5.0 GB") ||
		!strings.Contains(text, "by leases 1.0 kBbetween ranks 6.0 GB") {
		t.Error(text)
	}
	if text := page.Find("#traffic tbody").Text(); !strings.Contains(text, "42") || !strings.Contains(text, "7") ||
		!strings.Contains(text, "3") {
		t.Errorf("%q", page.Find("#traffic").Text())
	}
}

// A quote whose GPUs others take each time it is planned is answered like one for which nothing is free.
func TestQuote_OthersAreAlwaysFasterIsShownOnTheMarket(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(4)
	renter := b.org()
	seller, _ := fleettest.Org(t, b.db)
	b.exec("UPDATE host SET org_id = $1", seller) // an organisation cannot rent from itself
	b.exec("CREATE FUNCTION taken() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	b.exec("CREATE TRIGGER taken BEFORE INSERT ON gpu_claim FOR EACH ROW EXECUTE FUNCTION taken()")
	if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: "topup:test", Transfers: []ledger.Transfer{{
			Debit:  ledger.StripeClearing("USD"),
			Credit: ledger.Wallet(renter, "USD"),
			Amount: 100 * money.Unit,
		}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	res, doc := b.post("/quotes", url.Values{"nodes": {"1"}, "gpus": {"1"}, "image": {"x/y:1"}})
	if text := doc.Find("main").Text(); res.StatusCode != http.StatusConflict ||
		!strings.Contains(text, "are being taken by others at this moment") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}
