package e2e

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
)

// firstLoad is the most that the market may transfer into an empty browser, in bytes, headers included.
const firstLoad = 100_000

// TestTheMarketIsLight opens the market in a browser that has nothing cached.
func TestTheMarketIsLight(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	b := p.browse(t)
	b.open("/offers")
	b.see("table")
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	type part struct {
		Name string  `json:"name"`
		Size float64 `json:"transferSize"`
	}
	parts, err := chromedp.Run(ctx, chromedp.Evaluate[[]part](`(async () => {
		await document.fonts.ready;
		return ["navigation", "resource"].flatMap(type => performance.getEntriesByType(type))
			.map(e => ({name: new URL(e.name).pathname, transferSize: e.transferSize}));
	})()`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, x := range parts {
		t.Logf("%8.0f %s", x.Size, x.Name)
		if x.Size == 0 {
			t.Errorf("%s was not transferred: the browser's cache is not empty", x.Name)
		}
		sum += x.Size
	}
	if sum > firstLoad {
		t.Errorf("the market's first load is %.0f bytes, more than %d", sum, firstLoad)
	}
}
