//go:build jupyter

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// Debian's Jupyter on a rented rank, opened from the cluster's page in a real browser: a notebook is made, a cell typed
// and run, and the rank's own answer stands below it. What a kernel says comes over a WebSocket, as does a terminal.
// `make test-jupyter` makes the image.
func TestJupyterInABrowser(t *testing.T) {
	tarFile := os.Getenv("MUSTER_TEST_JUPYTER")
	if tarFile == "" {
		t.Fatal("MUSTER_TEST_JUPYTER names no image: run make test-jupyter, which makes one")
	}
	p := own(t)
	r := p.renter(t, 20*money.Unit)
	s := p.spec(2, 1, "jupyter", "notebook", "--no-browser", "--allow-root", "--ip=0.0.0.0", "--port=8888",
		"--NotebookApp.token=")
	s.Image, s.DiskGB, s.Ports = p.debianImage(t, "jupyter", tarFile), 10, []client.Port{{Port: 8888, Protocol: "http"}}
	c := r.run(t, s)
	r.awaitLine(t, c, 1, "Jupyter Notebook") // and is running at
	link, err := r.Clusters.GetPortLink(t.Context(), c.ID, 8888, client.RankQuery{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link.URL)
	if err != nil {
		t.Fatal(err)
	}
	site := u.Scheme + "://" + u.Host

	b := p.chromium(t) // whose console is Jupyter's own business
	b.do("the link leads to Jupyter", chromedp.Navigate(link.URL), chromedp.WaitVisible(chromedp.CSS("#notebook_list")))
	b.shot("jupyter-files")
	b.do("a new notebook", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		status, err := chromedp.Evaluate[int](newNotebook,
			func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) })(ctx, t)
		if err == nil && status != http.StatusCreated {
			err = fmt.Errorf("Jupyter answers %d", status)
		}
		return err
	}))
	b.do("open it", chromedp.Navigate(site+"/notebooks/Untitled.ipynb"), chromedp.WaitVisible(chromedp.CSS(".CodeMirror")))
	eventually(t, "its kernel answers over the WebSocket", func() bool {
		idle, err := chromedp.Run(b.ctx,
			chromedp.Evaluate[bool](`!!window.Jupyter?.notebook?.kernel?.is_connected() && !!document.querySelector(".kernel_idle_icon")`))
		return err == nil && idle
	})
	b.do("go into the cell", chromedp.Click(chromedp.CSS(".CodeMirror")),
		chromedp.WaitVisible(chromedp.CSS(".CodeMirror-focused")))
	b.do("type and run it",
		chromedp.KeyEvent("!echo rank $NODE_RANK of $NNODES at $MASTER_ADDR"),
		chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(chromedp.ModifierShift)))
	b.reads(".output_text", "rank 1 of 2 at")
	b.shot("jupyter")

	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.settle(t, c)
	p.idle(t)
	p.check(t)
}

// newNotebook asks Jupyter for a notebook as its own page does; the status it answers with.
const newNotebook = `fetch("/api/contents", {
  method: "POST",
  headers: {"Content-Type": "application/json", "X-XSRFToken": document.cookie.match(/_xsrf=([^;]+)/)[1]},
  body: JSON.stringify({type: "notebook"}),
}).then((r) => r.status)`
