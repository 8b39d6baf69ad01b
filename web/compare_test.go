package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/id"
)

// until waits for what a page shows: the view of the fleet is a moment old.
func (b *browser) until(what string, shown func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !shown(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not shown: %s", what)
		}
	}
}

// offerIDs returns the offers on the market, cheapest first.
func (b *browser) offerIDs() []string {
	b.t.Helper()
	_, doc := b.get("/offers")
	var ids []string
	for _, box := range doc.Find("input[name=offer]").EachIter() {
		ids = append(ids, box.AttrOr("value", ""))
	}
	return ids
}

func TestOffer_ShowsAllFacts(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	b.exec("UPDATE offer_price SET at = at - interval '5 days'")
	b.exec("INSERT INTO offer_price (offer_id, price) SELECT offer_id, 1500000 FROM offer_price")
	_, doc := b.get("/offers")
	link := doc.Find(".c-model a").AttrOr("href", "")
	_, doc = b.get(link)
	names := doc.Find(".offerfacts dt").Map(func(_ int, s *goquery.Selection) string { return s.Text() })
	facts := strings.Join(names, ",")
	if want := "Model,Maker,Kind,Architecture,Free," +
		"VRAM of each,Compute capability,NVLink,PCI Express,Power limit,Degraded,Drives a display,Processor cores,RAM," +
		"Free disk,Disk limit,Free scratch,Isolation,Shared file systems,NVIDIA driver,CUDA, newest," +
		"Region,Download,Upload,Fabric,RDMA for whole hosts,All-reduce over RDMA," +
		"Ring over NVLink,All-reduce over TCP," +
		"Clusters of several nodes,Per GPU-hour,Per GPU-second," +
		"GPUs, at least,Longest rental,GPUs,Reliability"; facts != want {
		t.Errorf("the facts are %s", facts)
	}
	if text := doc.Find(".offerfacts").Text(); !strings.Contains(text, "1.50 since") ||
		!strings.Contains(text, "2.00 before; 1 change") || !strings.Contains(text, "not rented in these days") {
		t.Errorf("the history is %s", text)
	}
	res, row := b.get(link + "?row=1")
	if res.StatusCode != http.StatusOK || row.Find("nav").Length() != 0 || row.Find(".offerfacts dt").Length() == 0 {
		t.Errorf("the row is %s", row.Text())
	}
	for _, none := range []string{"/offers/nonsense", "/offers/" + id.New[id.Offer]().String()} {
		if res, _ := b.get(none); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", none, res.StatusCode)
		}
	}
}

func TestCompare_ShowsOffersSideBySide(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	b.sell(4)
	ids := b.offerIDs()
	if len(ids) != 2 {
		t.Fatalf("offers: %v", ids)
	}
	_, doc := b.get("/offers/compare?offer=" + ids[1] + "&offer=" + ids[0])
	if n := doc.Find("table.compare thead th").Length(); n != 3 {
		t.Errorf("%d columns: %s", n, doc.Find("main").Text())
	}
	var differ []string
	for _, row := range doc.Find("tr.differs").EachIter() {
		differ = append(differ, row.Find("th").Text())
	}
	if !slices.Contains(differ, "Free") || slices.Contains(differ, "VRAM of each") {
		t.Errorf("these differ: %v", differ)
	}
	for path, want := range map[string]int{
		"/offers/compare":                         http.StatusUnprocessableEntity,
		"/offers/compare?offer=" + ids[0]:         http.StatusUnprocessableEntity,
		"/offers/compare?offer=x&offer=" + ids[0]: http.StatusNotFound,
		strings.Repeat("&offer="+ids[0], 5):       http.StatusUnprocessableEntity,
		"/offers/choose":                          http.StatusUnprocessableEntity,
		"/offers/choose?offer=x":                  http.StatusNotFound,
	} {
		if strings.HasPrefix(path, "&") {
			path = "/offers/compare?" + path[1:]
		}
		if res, _ := b.get(path); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}

// Chosen hosts become a query that finds them alone, with a node on each.
func TestChoose_FindsTheChosenHostsAlone(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	b.sell(4)
	b.sell(8)
	ids := b.offerIDs()
	if len(ids) != 3 {
		t.Fatalf("offers: %v", ids)
	}
	choose := "/offers/choose?offer=" + ids[0] + "&offer=" + ids[1]
	_, doc := b.get(choose)
	if q := doc.Find("#q").AttrOr("value", ""); !strings.HasPrefix(q, "host_name in [") ||
		doc.Find("td.c-add").Length() != 2 || doc.Find("#nodes").AttrOr("value", "") != "2" ||
		doc.Find("#gpus").AttrOr("value", "") != "2" {
		t.Errorf("%q finds %d offers, for %s × %s", q, doc.Find("td.c-add").Length(), doc.Find("#nodes").AttrOr("value", ""),
			doc.Find("#gpus").AttrOr("value", ""))
	}
	// Another host takes the name of a chosen one.
	b.exec("DROP INDEX host_name")
	b.exec("UPDATE host SET name = 'twin'")
	b.until("the names are the same", func() bool {
		_, doc = b.get(choose)
		return strings.HasPrefix(doc.Find("#q").AttrOr("value", ""), "id in [")
	})
	if doc.Find("td.c-add").Length() != 2 || doc.Find("#nodes").AttrOr("value", "") != "2" {
		t.Errorf("by id: %d offers", doc.Find("td.c-add").Length())
	}
}
