package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
)

// tab is a real browser with one page of the platform open.
type tab struct {
	t     *testing.T
	p     *platform
	ctx   context.Context
	shots string            // folder of screenshots
	kinds map[string]string // by path: kinds of pages that their paths do not distinguish

	mu       sync.Mutex
	mistakes []string // what the page wrote to the console that it should not
}

// browse opens Chromium on pages of ours. At the end the console is looked at: a script that failed, or something the
// content security policy refused, fails the test.
func (p *platform) browse(t *testing.T) *tab {
	t.Helper()
	b := p.chromium(t)
	console := chromedp.Console(b.ctx)
	go func() {
		for m, err := range console {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" && m.Source != "network" {
				b.mu.Lock()
				b.mistakes = append(b.mistakes, m.String())
				b.mu.Unlock()
			}
		}
	}()
	go b.repeatCutRequests()
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, m := range b.mistakes {
			t.Errorf("console: %s", m)
		}
	})
	return b
}

// repeatCutRequests reloads the page whenever Chromium has cut its request because a network interface came or went, as
// Docker's do for each container. Chromium repeats a GET by itself, and never a POST. It returns when the tab closes.
func (b *tab) repeatCutRequests() {
	const cut = `document.querySelector(".error-code")?.textContent.includes("ERR_NETWORK_CHANGED") ?? false`
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-b.ctx.Done():
			return
		case <-tick.C:
		}
		if was, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](cut)); err == nil && was {
			_ = chromedp.Do(b.ctx, chromedp.Reload())
		}
	}
}

// chromium opens Chromium on an empty profile. Screenshots go to $MUSTER_TEST_SHOTS, else to a folder that goes with
// the test.
func (p *platform) chromium(t *testing.T) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("the browser test needs Chromium: scripts/setup test")
	}
	b := &tab{t: t, p: p, shots: os.Getenv("MUSTER_TEST_SHOTS")}
	if b.shots == "" {
		b.shots = t.TempDir()
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1440, 900), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	b.ctx = ctx
	// The browser lives as long as the context of the first step.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1440, 900)); err != nil {
		t.Fatal(err)
	}
	return b
}

// do takes steps on the page. A page that is live may redraw what a step has just found: then the steps are taken again
// on what is there now.
func (b *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	err := chromedp.Do(ctx, steps...)
	for tick := time.NewTicker(200 * time.Millisecond); err != nil && ctx.Err() == nil; err = chromedp.Do(ctx, steps...) {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", what, err, b.page())
	}
}

// open goes to a page of the platform.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do("open "+path, chromedp.Navigate(b.p.URL+path), chromedp.WaitReady("main"))
}

// submit fills in a form, field by field (selector, value, …), and presses a button. A page that is live may put
// another button, or something else, where this one was just before the mouse gets there: then it is pressed again.
func (b *tab) submit(button string, fields ...string) {
	b.t.Helper()
	steps := []chromedp.Action[chromedp.Void]{chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[bool](fmt.Sprintf(heedPress, button))(ctx, t)
		return err
	})}
	for i := 0; i < len(fields); i += 2 {
		steps = append(steps, chromedp.SetValue(chromedp.CSS(fields[i]), fields[i+1]))
	}
	steps = append(steps, chromedp.ScrollIntoView(chromedp.CSS(button)), chromedp.Click(chromedp.CSS(button)),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			if missed, err := chromedp.Evaluate[bool](`window.pressed === false`)(ctx, t); err == nil && missed {
				return errors.New("the mouse missed it")
			}
			return nil // the page is already being left: the press worked
		}))
	b.do("press "+button, steps...)
}

// heedPress notes whether the next click is for a button.
const heedPress = `(() => {
  window.pressed = false;
  document.addEventListener("click", (e) => { window.pressed = e.target.closest(%q) !== null },
    {capture: true, once: true});
  return true;
})()`

// page describes where the browser is and what it shows, for a failure's message.
func (b *tab) page() string {
	b.shot("failed")
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	at, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + " " + document.readyState`))
	return fmt.Sprintf("%s (%v)\n%s", at, err, b.text("main"))
}

// see waits until something is on the page.
func (b *tab) see(selector string) {
	b.t.Helper()
	b.do("see "+selector, chromedp.WaitVisible(chromedp.CSS(selector)))
}

// text is what an element says now; "" when there is none.
func (b *tab) text(selector string) string {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector(`+"`"+selector+"`"+`)?.innerText ?? ""`))
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(s), " ")
}

// reads waits until an element says something.
func (b *tab) reads(selector, want string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for tick := time.NewTicker(100 * time.Millisecond); !strings.Contains(b.text(selector), want); <-tick.C {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s says %q and not %q\n%s", selector, b.text(selector), want, b.page())
		}
	}
}

// shot keeps a picture of the page.
func (b *tab) shot(name string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Logf("screenshot %s: %v", name, err)
		return
	}
	if err := os.WriteFile(filepath.Join(b.shots, name+".png"), picture, 0o644); err != nil {
		b.t.Error(err)
	}
}

// TestARentersJourneyInABrowser walks the dashboard as a new user does, from signing up to the statement.
func TestARentersJourneyInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	b := p.browse(t)

	b.open("/signup")
	b.see(".plate .art")
	b.submit("form button[type=submit]", "#email", "new@muster.example", "#password", "short")
	b.see("#password-e")
	b.submit("form button[type=submit]", "#name", "northlight", "#email", uuid.NewString()+"@muster.example", "#password",
		"a long enough sentence")
	b.reads(".who", "northlight")
	b.shot("market")

	b.open("/offers?q=gpu_model%3D%3E80")
	b.reads("#q-e", "^")
	b.open("/offers?q=gpu_model%3DH100")
	b.see(".chip")

	spec := []string{"#nodes", "2", "#gpus", "1", "#image", p.DemoImage, "#disk_gb", "1", "#name", "first-run",
		"#env", "TRAIN_STEPS=1000000\nTRAIN_STEP_MS=250\nTRAIN_LOG_EVERY=1"}
	b.submit("#spec button.primary[type=submit]", spec...)
	b.reads("#spec .callout", "credit")

	b.open("/billing")
	b.submit("#topup button[name=preset][value='100.00']")
	b.reads("#topup .callout", "Credit added")
	b.reads("#available", "100.00")

	b.open("/offers")
	b.submit("#spec button.primary[type=submit]", append(spec, "#nodes", "64")...)
	b.see(".explain")
	b.shot("nothing-fits")
	b.submit("#spec button.primary[type=submit]", spec...)
	b.see("#quote")
	b.reads("#quote [data-left]", ":")
	held := b.text("#quote [data-left]")
	b.do("the clock runs", chromedp.WaitNotPresent(chromedp.CSS("#quote .expiring")))
	eventually(t, "the quote counts down", func() bool { return b.text("#quote [data-left]") != held })
	b.shot("quote")

	b.submit("#quote button.primary")
	b.see("#nodes")
	b.reads(".idline .badge", "Running") // swapped in by the stream: the page is never loaded again
	b.reads(".phases .end", "meter opened here")
	b.reads("#cost", "0.")
	cost := b.text("#cost")
	eventually(t, "the cost counts up", func() bool { return b.text("#cost") != cost })
	b.reads(".purse", "4.80") // two GPUs, per hour
	b.reads(".log", "step")
	b.reads("#nodes tbody tr:nth-child(2) .c-host", "local-")
	b.see("#charts .util")
	b.shot("cluster")

	b.submit("[commandfor=confirm-release]:not(.quiet)")
	b.see("#confirm-release:modal .quiet:focus")
	for range 4 { // the keyboard stays in the dialog, or is on the browser's own controls
		if at := b.nextStop().Name; !strings.HasPrefix(at, "BODY ") {
			b.see("#confirm-release :focus")
		}
	}
	b.submit("#confirm-release .solid")
	b.reads(".idline .badge", "Released")
	b.reads(".clstrip", "settled")
	b.shot("released")

	eventually(t, "the statement is signed", func() bool { // it is there with the last report of the hosts
		b.open("/billing")
		return strings.Contains(b.text(".proofs"), "Signed by 2 hosts") && strings.Contains(b.text(".strip"), "0.00 held")
	})
	b.reads(".proofs", "Lines add up difference 0.000000000")
	b.reads("#statement", "first-run")
	b.reads(".proofs", "Signed by 2 hosts")
	b.reads(".strip", "0.00 held")
	b.shot("statement")
}
