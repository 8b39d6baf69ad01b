package web_test

import (
	"context"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// chromium starts a browser. do runs steps in it and fails the test if they do not succeed within a minute.
func chromium(t *testing.T) (ctx context.Context, do func(what string, steps ...chromedp.Action[chromedp.Void])) {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("the browser test needs Chromium: scripts/setup test")
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(2*time.Minute), chromedp.Flag("disable-component-update", true))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1440, 900)); err != nil {
		t.Fatal(err)
	}
	return ctx, func(what string, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := chromedp.Do(limited, steps...); err != nil {
			body, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + document.body.innerText"))
			t.Fatalf("%s: %v\n%s", what, err, body)
		}
	}
}

// until waits until a JavaScript expression is true on the page.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := chromedp.Run(limited, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(0))); err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
}

// signInSteps are the steps by which a browser signs in as the user of signUp and opens a page.
func signInSteps(site, path string) []chromedp.Action[chromedp.Void] {
	css := func(s string) chromedp.CSS { return chromedp.CSS(s) }
	return []chromedp.Action[chromedp.Void]{
		chromedp.Navigate(site + "/signin?next=" + path), chromedp.WaitReady(css("#password")),
		chromedp.SetValue(css("#email"), "mira@northlight.example"),
		chromedp.SetValue(css("#password"), "a long enough sentence"), chromedp.Click(css(`form[action="/signin"] button`)),
		chromedp.WaitReady(css(".who")),
	}
}

// line is a connection to a site that a test can cut and restore.
type line struct {
	url   string
	to    string
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// newLine makes a line to the site.
func newLine(t *testing.T, site string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	out := &line{url: localhost("http://" + l.Addr().String()), to: strings.TrimPrefix(site, "http://")}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go out.carry(c)
		}
	}()
	return out
}

func (l *line) carry(c net.Conn) {
	defer c.Close()
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer far.Close()
	l.mu.Lock()
	refused := l.cut
	l.conns = append(l.conns, c, far)
	l.mu.Unlock()
	if refused {
		return
	}
	go func() { _, _ = io.Copy(far, c) }()
	_, _ = io.Copy(c, far)
}

// set cuts the line, or mends it.
func (l *line) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut = cut; !cut {
		return
	}
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}
