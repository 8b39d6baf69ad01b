package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// A page has a shell on any rank of a running cluster: what is typed runs there, on a terminal as large as the one
// shown, and the page says how the shell ended.
func TestTerminalInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	b := p.browse(t)
	b.open("/signin")
	b.submit("form button[type=submit]", "#email", "renter@muster.example", "#password", p.Password)
	b.see(".who")
	local, err := client.New(p.URL, p.RenterToken)
	if err != nil {
		t.Fatal(err)
	}
	r := &renterOf{p, local}
	c := r.rentOne(t)

	b.open("/clusters/" + c.ID.String())
	if link := b.text("#connect a.btn"); link != "Open a terminal" {
		t.Fatalf("the cluster's page has %q", link)
	}
	b.open("/clusters/" + c.ID.String() + "/terminal?node=1")
	b.reads("#terminal-state", "Connected")
	b.types("stty size; echo rank=$NODE_RANK sum=$((40+2))")
	b.shows("rank=1 sum=42")
	size := strings.Fields(b.evaluate(`[...document.querySelectorAll(".xterm-rows > div")].map(e => e.textContent.trim())
		.find(s => /^\d+ \d+$/.test(s)) ?? ""`))
	rows := b.evaluate(`String(document.querySelectorAll(".xterm-rows > div").length)`)
	if len(size) != 2 || size[0] != rows {
		t.Errorf("stty says %q, the terminal shows %s rows", size, rows)
	}
	b.types("exit 7")
	b.reads("#terminal-state", "The shell ended with exit code 7.")
	b.do("reconnect", chromedp.Click("#terminal-again"))
	b.reads("#terminal-state", "Connected")
	b.types("echo again=$((6*7))")
	b.shows("again=42")
	b.recorded(c.ID.String(), 2)                            // the first shell and the second
	b.evaluate(`(fetch("/signout", {method: "POST"}), "")`) // only this browser's session ends
	b.reads("#terminal-state", "You were signed out")
	b.open("/signin")
	b.submit("form button[type=submit]", "#email", "renter@muster.example", "#password", p.Password)
	b.see(".who")
	b.open("/clusters/" + c.ID.String())
	b.see(`#nodes tr[data-rank="1"] .c-open a[href$="/terminal?node=1"]`)
	b.open("/clusters/" + c.ID.String() + "/terminal?node=1")
	b.reads("#terminal-state", "Connected")
	if _, err := local.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	b.see("#terminal-again:not([hidden])")
	if state := b.text("#terminal-state"); !strings.Contains(state, "exit code 137") &&
		!strings.Contains(state, "nothing left") {
		t.Errorf("after the release the page says %q", state)
	}
}

// recorded checks how many terminals of a cluster the audit log has.
func (b *tab) recorded(cluster string, want int64) {
	b.t.Helper()
	if got := b.p.sql(b.t, "SELECT count(*) FROM audit_event WHERE action = 'cluster.shell' AND object = $1 AND "+
		"detail->>'terminal' = 'browser' AND user_id IS NOT NULL", cluster); got != want {
		b.t.Errorf("the audit log has %d terminals of the cluster, want %d", got, want)
	}
}

// rentOne rents two nodes that sleep, and waits until they run.
func (r *renterOf) rentOne(t *testing.T) client.Cluster {
	t.Helper()
	s := r.p.spec(2, 1)
	s.Name, s.Image = "terminal", r.p.shellImage(t)
	if _, err := r.Billing.CreateTopUp(t.Context(),
		client.CreateTopUpRequest{Amount: (10 * money.Unit).String()}); err != nil {
		t.Fatal(err)
	}
	c, err := r.Clusters.Rent(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := afterwards(t)
		defer cancel()
		_, _ = r.Clusters.Release(ctx, c.ID)
	})
	if c, err = r.Clusters.Wait(t.Context(), c.ID, client.Running, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// types types a line into the terminal, which has the keyboard.
func (b *tab) types(text string) {
	b.t.Helper()
	b.do("type into the terminal", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}), chromedp.KeyEvent(kb.Enter))
}

// shows waits until the terminal shows a text.
func (b *tab) shows(want string) {
	b.t.Helper()
	var text string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if text = b.evaluate(`document.querySelector(".xterm-rows").innerText`); strings.Contains(text, want) {
			return
		}
	}
	b.t.Fatalf("the terminal does not show %q: %q", want, text)
}

// evaluate returns the value of an expression in the page.
func (b *tab) evaluate(js string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](js))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}
