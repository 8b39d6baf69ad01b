package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/host/hosttest"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/market"
	"github.com/musterhq/muster/internal/money"
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
	agent := hosttest.Enroll(b.t, b.db, org, user, n)
	hosttest.Activate(b.t, b.db, agent)
	price := money.Micro(2_000_000)
	err = b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := b.m.SyncOffers(ctx, tx, agent.Host); err != nil {
			return err
		}
		_, err := b.m.SetTerms(ctx, tx, org, user, agent.Host, "", market.Terms{Price: &price})
		return err
	})
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
	if text := doc.Find("main").Text(); res.StatusCode != http.StatusConflict || !strings.Contains(text, "not your own: nobody rents from themselves") {
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
	_, page = b.post(host+"/terms", url.Values{"price_per_gpu_hour": {"3.25"}, "min_gpus": {"1"}, "max_duration": {"0"}})
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
