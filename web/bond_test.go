package web_test

import (
	"context"
	"encoding/csv"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
)

// gang is a gang of the visitor's host lisbon-1 (rank 0) and another operator's lisbon-2 (rank 1), in which each failed
// once and once neither was to blame.
type gang struct {
	cluster      id.Cluster
	mine, theirs *meteringtest.Lease
	from         time.Time // of the first suspension, 30 s; the others follow a minute after each other
}

// gangOf makes the gang. The renter is another organisation, or with own the visitor's.
func (b *browser) gangOf(own bool) gang {
	b.t.Helper()
	me, other := b.org(), id.New[id.Org]()
	b.exec("INSERT INTO org (id, name, personal) VALUES ($1, 'other', false)", other)
	renter := other
	if own {
		renter = me
	}
	g := gang{
		mine:   meteringtest.New(b.t, b.db, renter, me, "USD"),
		theirs: meteringtest.New(b.t, b.db, renter, other, "USD"),
		from:   time.Now().UTC().Add(-40 * time.Minute).Truncate(time.Second),
	}
	g.cluster = g.mine.Cluster
	b.exec("UPDATE host SET name = 'lisbon-1' WHERE id = $1", g.mine.Host)
	b.exec("UPDATE host SET name = 'lisbon-2' WHERE id = $1", g.theirs.Host)
	b.exec(`UPDATE cluster SET created_by = (SELECT id FROM app_user LIMIT 1), name = 'train', image_ref = 'job:1',
		state = 'released', node_count = 2, rate = 7200000 WHERE id = $1`, g.cluster)
	b.exec("UPDATE lease SET cluster_id = $1, rank = 1 WHERE id = $2", g.cluster, g.theirs.ID)
	for _, l := range []*meteringtest.Lease{g.mine, g.theirs} {
		b.exec("INSERT INTO lease_bond (lease_id, cluster_id, host_id, org_id, currency, srate, amount, reserved) VALUES "+
			"($1, $2, $3, $4, 'USD', 3600000, 300000000, 300000000)", l.ID, g.cluster, l.Host, l.Operator)
	}
	ms := g.from.UnixMilli()
	for n, s := range []struct {
		class    string
		culprits []id.Lease
	}{{"silence", []id.Lease{g.mine.ID}}, {"proof", []id.Lease{g.theirs.ID}}, {"undecided", nil}} {
		ids := make([]string, len(s.culprits))
		for i, l := range s.culprits {
			ids[i] = l.UUID().String()
		}
		at := ms + int64(n)*60_000
		b.exec("INSERT INTO suspension (cluster_id, n, from_ms, to_ms, class, culprits) VALUES ($1, $2, $3, $4, $5, "+
			"$6::uuid[])", g.cluster, n+1, at, at+30_000, s.class, ids)
		if s.class != "proof" {
			b.exec("INSERT INTO deaf_span (lease_id, epoch, peer, from_ms, to_ms) VALUES ($1, 1, 1, $3, $4), ($2, 1, 0, $3, $4)",
				g.mine.ID, g.theirs.ID, at, at+30_000)
		}
	}
	b.exec("INSERT INTO silence (host_id, from_ms, to_ms, kind) VALUES ($1, $2, $3, 'late')", g.mine.Host, ms, ms+30_000)
	b.exec("INSERT INTO silence (host_id, from_ms, to_ms, kind) VALUES ($1, $2, $3, 'missing')", g.theirs.Host, ms+60_000,
		ms+90_000)
	b.exec("INSERT INTO standby (victim, culprit, cluster_id, ms, posted, host_posted) VALUES ($1, $2, $3, 30000, "+
		"30000000, 25500000), ($2, $1, $3, 30000, 30000000, 25500000)", g.theirs.ID, g.mine.ID, g.cluster)
	b.exec("INSERT INTO standby_relief (victim, cluster_id, ms, host_posted) VALUES ($1, $2, 30000, 25500000)", g.mine.ID,
		g.cluster)
	post := func(kind, key string, transfers ...ledger.Transfer) {
		b.t.Helper()
		if err := b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{
				Kind:      kind,
				Key:       key,
				Ref:       g.cluster.String(),
				Memo:      "node 1 stood by 30.0 s for node 0",
				Transfers: transfers,
			})
			return err
		}); err != nil {
			b.t.Fatal(err)
		}
	}
	hold, total := ledger.BondHold(me, g.mine.ID, "USD"), ":30000000"
	theirs := ledger.BondHold(other, g.theirs.ID, "USD")
	post("bond_deposit", "bonds", ledger.Transfer{
		Debit:  ledger.StripeClearing("USD"),
		Credit: hold,
		Amount: 300_000_000,
	}, ledger.Transfer{Debit: ledger.StripeClearing("USD"), Credit: theirs, Amount: 300_000_000})
	post("standby", "standby:"+g.theirs.ID.String()+":"+g.mine.ID.String()+total, ledger.Transfer{
		Debit:  hold,
		Credit: ledger.HostPending(other, "USD"),
		Amount: 25_500_000,
	}, ledger.Transfer{Debit: hold, Credit: ledger.Fee("USD"), Amount: 4_500_000})
	post("standby", "standby:"+g.mine.ID.String()+":"+g.theirs.ID.String()+total, ledger.Transfer{
		Debit:  theirs,
		Credit: ledger.HostPending(me, "USD"),
		Amount: 25_500_000,
	}, ledger.Transfer{Debit: theirs, Credit: ledger.Fee("USD"), Amount: 4_500_000})
	post("relief", "relief:"+g.cluster.String()+":"+g.mine.ID.String()+total, ledger.Transfer{
		Debit:  ledger.StandbyRelief("USD"),
		Credit: ledger.HostPending(me, "USD"),
		Amount: 25_500_000,
	})
	return g
}

// An operator deposits paid credit, withdraws it, sets terms and works out what a lease would be liable for.
func TestTheBondOnThePage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, page := b.get("/hosts/bond")
	sound(t, "/hosts/bond", page)
	if !strings.Contains(page.Find("main").Text(), "Without a bond your hosts are not placed") ||
		page.Find("#paid .empty").Length() != 1 {
		t.Error(page.Find("main").Text())
	}
	if res, page := b.post("/hosts/bond/deposit",
		url.Values{"amount": {"5"}}); res.StatusCode != http.StatusPaymentRequired ||
		page.Find("#amount-deposit-e").Length() != 1 || page.Find("#amount-withdraw-e").Length() != 0 {
		t.Error(res.Status, page.Find("#deposit").Text())
	}
	b.post("/billing/topups", url.Values{"amount": {"100.00"}})
	for _, wrong := range []string{"", "x", "-1", "0", "1e9"} {
		if res, page := b.post("/hosts/bond/deposit",
			url.Values{"amount": {wrong}}); res.StatusCode != http.StatusUnprocessableEntity ||
			page.Find("#amount-deposit-e").Length() != 1 {
			t.Errorf("%q: %s", wrong, res.Status)
		}
	}
	_, page = b.get("/hosts/bond")
	once := page.Find("#deposit input[name=once]").AttrOr("value", "")
	for range 2 { // sent twice by an impatient hand
		_, page = b.post("/hosts/bond/deposit", url.Values{"amount": {"25"}, "once": {once}})
	}
	if got := page.Find("#free").Text(); strings.TrimSpace(got) != "25.00" || page.Find(".callout.s-ok").Length() != 1 {
		t.Error(got)
	}
	if _, page = b.post("/hosts/bond/withdraw",
		url.Values{"amount": {"10"}}); strings.TrimSpace(page.Find("#free").Text()) != "15.00" {
		t.Error(page.Find("main").Text())
	}
	if res, page := b.post("/hosts/bond/withdraw",
		url.Values{"amount": {"16"}}); res.StatusCode != http.StatusPaymentRequired ||
		page.Find("#amount-withdraw").AttrOr("value", "") != "16" {
		t.Error(res.Status, page.Find("#withdraw").Text())
	}
	if res, page := b.post("/hosts/bond/terms", url.Values{
		"retain": {"101"},
		"limit":  {"x"},
	}); res.StatusCode != http.StatusUnprocessableEntity || page.Find("#retain-e").Length() != 1 ||
		page.Find("#limit-e").Length() != 1 || page.Find("#retain").AttrOr("value", "") != "101" {
		t.Error(res.Status, page.Find("#terms").Text())
	}
	_, page = b.post("/hosts/bond/terms", url.Values{"retain": {"12.5"}, "limit": {"7.50"}, "accept_unbonded": {"on"}})
	if page.Find("#retain").AttrOr("value", "") != "12.5" || page.Find("#limit").AttrOr("value", "") != "7.50" ||
		page.Find("input[name=accept_unbonded][checked]").Length() != 1 {
		t.Error(page.Find("#terms").Text())
	}
	if _, page = b.get("/hosts/bond?nodes=8&price=20"); !strings.Contains(page.Find("#at-most").Text(),
		"at most 11.67 USD") {
		t.Error(page.Find("#liability").Text())
	}
	if _, page = b.get("/hosts/bond?nodes=1&price=x"); page.Find("#nodes-e").Length() != 1 ||
		page.Find("#price-e").Length() != 1 || page.Find("#at-most").Length() != 0 {
		t.Error(page.Find("#liability").Text())
	}
	if wallet, err := ledger.Balance(t.Context(), b.db.Q, ledger.Wallet(b.org(), "USD")); err != nil ||
		wallet != 85*money.Unit {
		t.Error(wallet, err)
	}
}

// What the bond paid and what hosts received is listed with the reason and the evidence; a host's page says the most it
// is liable for.
func TestWhatTheBondPaidAndWhy(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	g := b.gangOf(false)
	_, page := b.get("/hosts/bond")
	sound(t, "/hosts/bond", page)
	text := strings.Join(strings.Fields(page.Find("#paid").Text()), " ")
	span := g.from.Format("15:04:05") + "–" + g.from.Add(30*time.Second).Format("15:04:05") + " UTC"
	for _, want := range []string{
		"Your bond paid 0.03: lisbon-1 failed, and rank 1 stood by for 30.0 s.", "−0.0300",
		"Rank 0 (your host lisbon-1) was cut off: its reports of " + span +
			" came late and rank 0 and another rank lost contact with each other.",
		"lisbon-1 stood by for 30.0 s: 0.03 from the failing host's bond, less the fee.", "0.0255",
		"Rank 1 was not proven up: its reports of", "are missing.",
		"lisbon-1 stood by for 30.0 s. No host is to blame; the platform pays.",
		"Ranks 0 and 1 lost contact with each other; no host is to blame",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in: %s", want, text)
		}
	}
	if strings.Contains(page.Text(), "lisbon-2") {
		t.Error("it names another operator's host")
	}
	path := page.Find("#paid a").AttrOr("href", "")
	_, page = b.get(path)
	sound(t, path, page)
	if page.Find(".suspension").Length() != 3 || page.Find(".suspension").Eq(0).Find("tbody tr").Length() != 3 ||
		!strings.Contains(page.Text(), "Rank 0: its host signed that it received nothing from rank 1") {
		t.Error(page.Find("main").Text())
	}
	for _, none := range []string{"/hosts/bond/clusters/x", "/hosts/bond/clusters/" + id.New[id.Cluster]().String()} {
		if res, _ := b.get(none); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", none, res.Status)
		}
	}
	b.exec("INSERT INTO host_status (host_id) VALUES ($1) ON CONFLICT DO NOTHING", g.mine.Host)
	host := "/hosts/" + g.mine.Host.String()
	if _, page = b.get(host); !strings.Contains(page.Find("#liable").Text(), "0.27") {
		t.Error(page.Find("#gang").Text())
	}
	b.post("/billing/topups", url.Values{"amount": {"100.00"}})
	b.post("/hosts/bond/deposit", url.Values{"amount": {"25"}})
	if _, page = b.get(host); !strings.Contains(strings.Join(strings.Fields(page.Find("#liable").Text()), " "),
		"at most 25.27 USD, your whole bond.") {
		t.Error(page.Find("#gang").Text())
	}
	if res, page := b.post(host+"/liability",
		url.Values{"gang_liability_max": {"x"}}); res.StatusCode != http.StatusUnprocessableEntity ||
		page.Find("#gang_liability_max-e").Length() != 1 || page.Find("#gang_liability_max").AttrOr("value", "") != "x" {
		t.Error(res.Status, page.Find("#gang").Text())
	}
	_, page = b.post(host+"/liability", url.Values{"gang_liability_max": {"11.67"}})
	liable := strings.Join(strings.Fields(page.Find("#liable").Text()), " ")
	if !strings.Contains(liable, "at most 11.67 USD, its own limit.") {
		t.Error(page.Find("#gang").Text())
	}
	if _, page = b.post(host+"/liability",
		url.Values{"gang_liability_max": {""}}); !strings.Contains(page.Find("#liable").Text(), "25.27") {
		t.Error(page.Find("#gang").Text())
	}
	if res, _ := b.post("/hosts/"+g.theirs.Host.String()+"/liability",
		url.Values{"gang_liability_max": {"1"}}); res.StatusCode != http.StatusNotFound {
		t.Error(res.Status)
	}
	// The renter of the gang has no host in it, and a stranger sees nothing.
	b.post("/signout", nil)
	b.post("/signup", url.Values{"email": {"eve@example.com"}, "password": {"a long enough sentence"}, "name": {"eve"}})
	if res, _ := b.get(path); res.StatusCode != http.StatusNotFound {
		t.Error(res.Status)
	}
}

// A renter sees which time was not billed and why: on the cluster's page and in the statement.
func TestTimeThatWasNotBilled(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	g := b.gangOf(true)
	for path, rows := range map[string]int{
		"/clusters/" + g.cluster.String():                               3,
		"/billing/statement?from=" + daysAgo(2) + "&to=" + daysAgo(-1):  3,
		"/billing/statement?from=" + daysAgo(20) + "&to=" + daysAgo(10): 0,
	} {
		b.exec("UPDATE cluster SET running_at = created_at, ended_at = clock_timestamp(), settled_at = clock_timestamp() "+
			"WHERE id = $1", g.cluster)
		res, page := b.get(path)
		text := strings.Join(strings.Fields(page.Find("#not-billed").Text()), " ")
		if res.StatusCode != http.StatusOK || page.Find("#not-billed tbody tr").Length() != rows {
			t.Fatalf("%s: %s %s", path, res.Status, page.Find("main").Text())
		}
		if rows == 0 {
			continue
		}
		sound(t, path, page)
		for _, want := range []string{"30.0 s not billed: rank 0 (host lisbon-1) was cut off",
			"30.0 s not billed: rank 1 (host lisbon-2) was not proven up",
			"30.0 s not billed: ranks 0 and 1 lost contact with each other; no host is to blame"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %s", path, want, text)
			}
		}
	}
}

// An operator's statement lists what its hosts received for standing by and what its bond paid, apart from what was
// billed.
func TestStandbyOnTheEarningsPage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	g := b.gangOf(false)
	days := "?from=" + daysAgo(2) + "&to=" + daysAgo(-1)
	for host, want := range map[string]int{"": 3, "&host=" + g.mine.Host.String(): 3} {
		_, page := b.get("/hosts/statement" + days + host)
		sound(t, "/hosts/statement", page)
		text := strings.Join(strings.Fields(page.Find("#standby").Text()), " ")
		if page.Find("#standby tbody tr").Length() != want ||
			strings.TrimSpace(page.Find("#standby-received").Text()) != "0.0510" ||
			strings.TrimSpace(page.Find("#bond-paid").Text()) != "−0.0300" {
			t.Errorf("%s: %s", host, text)
		}
		for _, want := range []string{"Standby, from the failing host's bond", "Standby, paid by the platform",
			"Your bond paid another operator's host"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
	}
	res, err := b.http.Get(b.url + "/hosts/statement.csv" + days)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	rows, err := csv.NewReader(res.Body).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, r := range rows[1:] {
		kinds[r[1]]++
	}
	if kinds["standby"] != 1 || kinds["relief"] != 1 || kinds["bond"] != 0 {
		t.Error(kinds)
	}
	if _, page := b.get("/hosts/statement?from=" + daysAgo(20) + "&to=" +
		daysAgo(10)); page.Find("#standby").Length() != 0 {
		t.Error(page.Find("#standby").Text())
	}
}
