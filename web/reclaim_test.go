package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestAnOperatorTakesAHostBack(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(1)
	_, doc := b.get("/hosts")
	host, _ := doc.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	if _, doc := b.get(host); !strings.Contains(doc.Find("#confirm-reclaim").Text(), "costs nothing") ||
		doc.Find("#notice option").Length() < 3 {
		t.Error(doc.Find("#reclaim").Text())
	}
	if res, _ := b.post(host+"/reclaim",
		url.Values{"notice": {"soon"}}); res.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("no time at all: %d", res.StatusCode)
	}
	if _, doc := b.post(host+"/reclaim", url.Values{"notice": {"7200"}}); !strings.Contains(doc.Find("#reclaim").Text(),
		"Running jobs end at") {
		t.Error(doc.Find("#reclaim").Text())
	}
	if _, doc := b.post(host+"/actions", url.Values{"action": {"resume"}}); strings.Contains(doc.Find("#reclaim").Text(),
		"Running jobs end at") {
		t.Error(doc.Find("#reclaim").Text())
	}
}
