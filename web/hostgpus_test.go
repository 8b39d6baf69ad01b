package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// hostPage returns the page of the visitor's only host.
func (b *browser) hostPage() *goquery.Document {
	b.t.Helper()
	_, list := b.get("/hosts")
	link, _ := list.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	_, page := b.get(link)
	return page
}

// The clock of each GPU is on its host's page: now, and as a chart in which a throttled span is marked with its reason.
// A GPU that idles has no chart.
func TestAHostsPageShowsWhatSlowsItsGPUsDown(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	var gpu id.GPU
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id FROM gpu WHERE idx = 1").Scan(&gpu); err != nil {
		t.Fatal(err)
	}
	var samples []host.Sample
	for at := time.Now().Add(-10 * time.Minute); at.Before(time.Now()); at = at.Add(10 * time.Second) {
		v := host.Speed{SMMHz: 1980, MemMHz: -1, Limits: host.LimitPower, Fan: 45, PCIeReplays: -1, NVLinkErrors: -1}
		if time.Since(at) < 5*time.Minute {
			v.SMMHz, v.Limits = 990, host.LimitPower|host.LimitBrake
		}
		samples = append(samples, host.Sample{At: at, Util: 99, MemMB: 1024, PowerW: 412, TempC: 61, Speed: &v})
	}
	if err := host.NewAgents(b.db, nil).AppendTelemetry(t.Context(),
		[]host.Series{{GPU: gpu, Samples: samples}}); err != nil {
		t.Fatal(err)
	}
	cells := b.hostPage().Find("td.c-clock")
	if cells.Length() != 2 || cells.Eq(0).Find("svg").Length() != 0 || strings.TrimSpace(cells.Eq(0).Text()) != "" {
		t.Fatalf("%d GPUs, of the idle one: %q", cells.Length(), cells.Eq(0).Text())
	}
	busy := cells.Eq(1)
	if text := busy.Text(); !strings.Contains(text, "990 MHz, fan 45 %") ||
		!strings.Contains(text, "slowed by: power brake") {
		t.Errorf("now: %q", text)
	}
	chart := busy.Find("svg")
	if label, _ := chart.Attr("aria-label"); label != "GPU 1: clock up to 1980 MHz, slowed by: power brake" {
		t.Errorf("the chart is labelled %q", label)
	}
	if line, _ := chart.Find("path.ln").Attr("d"); line == "" || chart.Find("rect.slow").Length() != 1 ||
		!strings.HasSuffix(chart.Find("rect.tip title").Text(), " UTC: power brake") {
		t.Errorf("the chart has the line %q, %d marks, %q", line, chart.Find("rect.slow").Length(),
			chart.Find("rect.tip title").Text())
	}
}

func TestAHostsPageShowsWhatItMeasuredOfNVLink(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	const label = "Ring over NVLink"
	if text := b.hostPage().Find("#machine").Text(); strings.Contains(text, label) {
		t.Errorf("before anything was measured: %s", text)
	}
	b.exec("UPDATE gpu SET busbw_nvlink = 2981.4 - 100 * idx, busbw_nvlink_at = '2026-11-24T02:10:00Z'")
	const want = "2881.4 Gbit/s from each GPU to the next, GPU 1 is the slowest, on 24 Nov 2026, 02:10 UTC"
	if text := b.hostPage().Find("#machine").Text(); !strings.Contains(text, label) || !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
}
