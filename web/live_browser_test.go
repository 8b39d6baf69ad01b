package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/musterhq/muster/internal/id"
)

// A live page whose stream is cut says that it is not live and keeps what it shows. When the stream is back it goes on
// where the cluster is then.
func TestALivePageSaysWhenItIsNotLive(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	cl := id.New[id.Cluster]()
	b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
		currency) SELECT $1, $2, id, 'train', '{}', 'job:1', 'provisioning', 1, 1, 7200000, 'USD' FROM app_user`, cl, b.org())
	to := newLine(t, b.url)
	ctx, do := chromium(t)
	css := func(s string) chromedp.CSS { return chromedp.CSS(s) }
	text := func() string {
		t.Helper()
		s, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	do("open the page", append(signInSteps(to.url, "/clusters/"+cl.String()), chromedp.WaitReady(css("#cost")))...)
	b.exec("UPDATE cluster SET name = 'one'")
	until(t, ctx, `document.querySelector("h1").textContent === "one"`)
	if strings.Contains(text(), "Not live") {
		t.Errorf("a live page says that it is not live:\n%s", text())
	}
	to.set(true)
	do("cut", chromedp.WaitReady(css("body.stale [data-notlive]")))
	if s := text(); !strings.Contains(s, "Not live since ") || !strings.Contains(s, "Provisioning") {
		t.Errorf("the page of a broken stream:\n%s", s)
	}
	b.exec("UPDATE cluster SET name = 'two'")
	to.set(false)
	until(t, ctx, `document.querySelector("h1").textContent === "two"`)
	do("mended", chromedp.WaitReady(css("body:not(.stale)")))
	if strings.Contains(text(), "Not live") {
		t.Errorf("a page that is live again says that it is not:\n%s", text())
	}
}
