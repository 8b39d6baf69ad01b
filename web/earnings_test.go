package web_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// An operator sees what each host earned, and prints it or downloads it as CSV. Others do not see it.
func TestTheEarningsPage(t *testing.T) {
	t.Parallel()
	b := open(t)
	if res, _ := b.get("/hosts/statement.csv"); res.Header.Get("Content-Type") == "text/csv; charset=utf-8" {
		t.Error("open to anybody")
	}
	b.signUp()
	if _, doc := b.get("/hosts/statement"); !strings.Contains(doc.Find("#sums").Text(), "Nothing earned") ||
		doc.Find("#lines, #leases, #returns").Length() != 0 {
		t.Errorf("nothing yet: %s", doc.Find("main").Text())
	}
	var own id.Org
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id FROM org").Scan(&own); err != nil {
		t.Fatal(err)
	}
	other, _ := fleettest.Org(t, b.db)
	lease, foreign := meteringtest.New(t, b.db, other, own, "USD"), meteringtest.New(t, b.db, own, other, "USD")
	lease.Run(123_456)
	foreign.Run(1_000)
	cost, host := meteringtest.Cost(123_456)
	days := "?from=" + daysAgo(2) + "&to=" + daysAgo(-1)
	res, doc := b.get("/hosts/statement" + days + "&by=lease")
	text := strings.Join(strings.Fields(doc.Find("#sums").Text()), " ")
	if !strings.Contains(text, "123.456") {
		t.Errorf("the sums do not say 123.456: %s", text)
	}
	for _, want := range []money.Nano{cost, cost - host, host} { // rounded, and exact on hover
		if s := doc.Find(`#sums .money[title="` + want.String() + `"]`); s.Length() == 0 || len(s.First().Text()) != 6 {
			t.Errorf("the sums do not say %s: %s", want, text)
		}
	}
	if res.StatusCode != http.StatusOK || doc.Find("#lines tbody tr").Length() != 1 ||
		!strings.Contains(doc.Find("#leases").Text(), "Settled") ||
		!strings.Contains(doc.Find("#leases").Text(), "30 days") || doc.Find("#by option[selected]").Text() != "lease" {
		t.Errorf("%s %s", res.Status, doc.Find("main").Text())
	}
	link, _ := doc.Find("a[href*='.csv']").Attr("href")
	csvRes, err := b.http.Get(b.url + link)
	if err != nil {
		t.Fatal(err)
	}
	defer csvRes.Body.Close()
	rows, err := csv.NewReader(csvRes.Body).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][12] != host.String() {
		t.Errorf("%v %v", rows, err)
	}
	if _, doc := b.get("/hosts/statement" + days + "&host=" +
		lease.Host.String()); doc.Find("#lines tbody tr").Length() != 1 {
		t.Errorf("of the host: %s", doc.Find("main").Text())
	}
	for _, h := range []string{foreign.Host.String(), "nonsense"} {
		if res, _ := b.get("/hosts/statement?host=" + h); res.StatusCode != http.StatusNotFound {
			t.Errorf("of the host %s: %s", h, res.Status)
		}
	}
	res, doc = b.get("/hosts/statement?from=2026-02-02&to=2026-02-01")
	if res.StatusCode != http.StatusUnprocessableEntity || doc.Find("#from-e").Length() != 1 {
		t.Errorf("days that are none: %s", res.Status)
	}
	if _, doc := b.get("/hosts"); doc.Find("a[href='/hosts/statement']").Length() != 1 {
		t.Error("the hosts page does not lead there")
	}
}

// Long lists are folded under a line that sums them up; short ones are open.
func TestTheEarningsPage_FoldsLongLists(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	other, _ := fleettest.Org(t, b.db)
	days := "?from=" + daysAgo(2) + "&to=" + daysAgo(-1)
	for n := range 7 {
		meteringtest.New(t, b.db, other, b.org(), "USD").Run(1000)
		_, doc := b.get("/hosts/statement" + days)
		if open := doc.Find("#leases details[open]").Length() == 1; open != (n < 5) {
			t.Errorf("%d leases: open %t", n+1, open)
		}
		if n == 6 && !strings.HasPrefix(doc.Find("#leases summary").Text(), "7 leases, 0 open: 0.00 not booked yet") {
			t.Error(doc.Find("#leases summary").Text())
		}
	}
}

// daysAgo is a day of the visitor's org, which counts in UTC.
func daysAgo(n int) string { return time.Now().UTC().AddDate(0, 0, -n).Format(time.DateOnly) }
