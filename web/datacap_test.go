package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The operator sets a cap, sees how much of it is used, and why nothing new is rented.
func TestAHostsDataCap(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(1)
	_, doc := b.get("/hosts")
	host, _ := doc.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	res, doc := b.post(host+"/data", url.Values{"up_cap_gb": {"-5"}, "down_cap_gb": {""}})
	if res.StatusCode != http.StatusUnprocessableEntity || doc.Find("#up_cap_gb-e").Length() != 1 ||
		doc.Find("#up_cap_gb").AttrOr("value", "") != "-5" {
		t.Errorf("a cap that is none: %d %s", res.StatusCode, doc.Find("#data").Text())
	}
	if res, doc := b.post(host+"/data", url.Values{
		"up_cap_gb":   {""},
		"down_cap_gb": {"much"},
	}); res.StatusCode != http.StatusUnprocessableEntity || doc.Find("#down_cap_gb-e").Length() != 1 {
		t.Errorf("a cap that is none: %d", res.StatusCode)
	}
	if _, err := b.db.Pool.Exec(t.Context(), `INSERT INTO host_month_traffic (host_id, month, up_bytes, down_bytes)
		SELECT id, date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC')::date, 2500000000, 7000000000 FROM
		host`); err != nil {
		t.Fatal(err)
	}
	_, doc = b.post(host+"/data", url.Values{"up_cap_gb": {"10"}, "down_cap_gb": {""}})
	if text := doc.Find("#data").Text(); !strings.Contains(text, "2.5 of 10 GB") || !strings.Contains(text, "7.0 GB") ||
		!strings.Contains(text, "Running jobs continue") ||
		doc.Find("#data svg.bar").Length() != 1 || doc.Find("#up_cap_gb").AttrOr("value", "") != "10" {
		t.Error(text)
	}
	if text := doc.Find("#data").Text(); strings.Contains(text, "images 1.5 GB") {
		t.Errorf("pulls are shown of an agent that does not count them: %s", text)
	}
	if _, err := b.db.Pool.Exec(t.Context(), "INSERT INTO host_pulls (host_id, counter, bytes) SELECT id, 'a', "+
		"1500000000 FROM host"); err != nil {
		t.Fatal(err)
	}
	_, doc = b.post(host+"/data", url.Values{"up_cap_gb": {"10"}, "down_cap_gb": {"100"}})
	if text := doc.Find("#data").Text(); !strings.Contains(text, "8.5 of 100 GB") ||
		!strings.Contains(text, "by leases 7.0 GB") || !strings.Contains(text, "images 1.5 GB") {
		t.Error(text)
	}
	_, doc = b.post(host+"/data", url.Values{"up_cap_gb": {"10"}, "down_cap_gb": {"7"}})
	if text := doc.Find("main").Text(); !strings.Contains(text, "is used up") ||
		!strings.Contains(text, "Data cap used up") {
		t.Error(text)
	}
}
