package e2e

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// axe is axe-core 4.10.3 (Deque, MPL-2.0), which checks a page against the rules of WCAG 2 and best practice.
//
//go:embed testdata/axe/axe.min.js
var axe string

// look is a width of the window in CSS pixels and a theme.
type look struct {
	width    int64
	theme    string
	contrast bool // only the contrast of colours is checked: the theme decides nothing else
}

func (l look) String() string { return fmt.Sprintf("%d px, %s", l.width, l.theme) }

// looks are the ways in which every page is checked. axe checks the first of them, and all if MUSTER_TEST_LOOKS is
// "all" or pictures are taken; every width is checked for what is wider than the window.
var looks = []look{{1440, "light", false}, {1440, "dark", true}, {390, "dark", false}, {390, "light", true}}

// everyLook reports whether axe checks every look of a page.
func everyLook() bool {
	return os.Getenv("MUSTER_TEST_LOOKS") == "all" || os.Getenv("MUSTER_TEST_SHOTS") != ""
}

// TestEveryPageIsAccessible follows the links of the site as a visitor, a renter with clusters, a host operator and an
// admin, and checks each kind of page once: axe finds no violation and nothing is wider than the window.
func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	renter, err := client.New(p.URL, p.RenterToken)
	if err != nil {
		t.Fatal(err)
	}
	r := &renterOf{p, renter}
	ended, running := r.rentAndRelease(t)
	r.createVolume(t)
	b := p.browse(t)
	b.kinds = map[string]string{
		"/clusters/" + ended.String(): "/clusters/*/ended", "/clusters/" + running.String(): "/clusters/*/running",
	}
	b.do("the motion ends", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return err
	}))
	walked, known := 0, map[string]bool{}
	for _, who := range []string{"", "renter", "operator", "admin"} {
		b.do("sign out", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{})
			return err
		}))
		if who != "" {
			b.open("/signin")
			b.submit("form button[type=submit]", "#email", who+"@muster.example", "#password", p.Password)
			b.see(".who")
		}
		walked += b.walk(who, known)
		if who == "renter" {
			b.quote(p.DemoImage)
		}
	}
	if walked < 40 {
		t.Errorf("%d kinds of pages were found; there are more than 40", walked)
	}
}

// quote checks the market with a quote in the place of the rent form, and returns the quote.
func (b *tab) quote(image string) {
	b.t.Helper()
	b.do("a wide window", chromedp.EmulateViewport(1440, 900))
	b.open("/offers")
	b.submit("#spec button.primary[type=submit]", "#nodes", "1", "#gpus", "1", "#image", image, "#disk_gb", "1",
		"#name", "quoted")
	b.see("#quote")
	b.prepare("/offers")
	for i, l := range looks {
		if l.contrast && !everyLook() {
			continue
		}
		b.show(l)
		if i == 0 || everyLook() {
			b.check("renter", "a quote", l)
		}
		b.fits("renter", "a quote", l)
		if os.Getenv("MUSTER_TEST_SHOTS") != "" {
			b.picture("/offers/quote", l)
		}
	}
	b.do("a wide window", chromedp.EmulateViewport(1440, 900))
	b.submit("#quote form[action$=return] button")
	b.see("#spec")
}

// renterOf is the local renter of a platform.
type renterOf struct {
	p *platform
	*client.Client
}

// rentAndRelease leaves a cluster that has ended and one that runs, so that the pages have something to show. The one
// that runs is released at the end of the test.
func (r *renterOf) rentAndRelease(t *testing.T) (ended, running id.Cluster) {
	t.Helper()
	if _, err := r.Billing.CreateTopUp(t.Context(),
		client.CreateTopUpRequest{Amount: (100 * money.Unit).String()}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		nodes := 1
		if i > 0 && os.Getenv("MUSTER_TEST_SHOTS") != "" {
			nodes = 2 // a picture shows more of it; other tests need the GPUs
		}
		s := r.p.spec(nodes, nodes, "sleep", "3600")
		s.Name = fmt.Sprintf("looked-at-%d", i)
		c, err := r.Clusters.Rent(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := afterwards(t)
			defer cancel()
			_, _ = r.Clusters.Release(ctx, c.ID)
		})
		if _, err := r.Clusters.Wait(t.Context(), c.ID, client.Running, nil); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
			ended = c.ID
		} else {
			running = c.ID
		}
	}
	return ended, running
}

// createVolume creates a volume, which is deleted at the end of the test.
func (r *renterOf) createVolume(t *testing.T) {
	t.Helper()
	v, err := r.Volumes.Create(t.Context(), client.NewVolume{Name: "looked-at", SizeGB: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := afterwards(t)
		defer cancel()
		_ = r.Volumes.Delete(ctx, v.ID)
	})
}

// identifier is what distinguishes pages of one kind: an id, a number, a month.
var identifier = regexp.MustCompile(`[a-z]+_[0-9a-hjkmnp-tv-z]{8,}|\b\d+\b`)

// documents are the folders of the documentation whose pages are alike; one of each is checked.
var documents = regexp.MustCompile(`^/docs/(adr|api|cli|hardware|launch|reference|tutorials)/`)

// prose are documents, which look alike: no picture is taken of them, and one is checked in every look.
var prose = regexp.MustCompile(`^/(cli|docs/.+|offers/choose)$`)

// forVisitors are the pages that are the same for all users; a visitor's walk checks them.
var forVisitors = regexp.MustCompile(`^/(docs|pricing|status|terms|privacy|cli|estimate)(/|$)`)

// forOperators are the pages that are empty for who has no hosts: an operator's walk takes their pictures.
var forOperators = regexp.MustCompile(`^/(hosts|payouts)(/|$)`)

// walk checks every kind of page that links from the front page lead to, and returns how many there are.
// It adds to known the kinds that it checked. Kinds that were known, and all prose but the first, are checked by axe in
// the first look only, and for what is wider than the window at both widths.
func (b *tab) walk(who string, known map[string]bool) int {
	b.t.Helper()
	next, seen := []string{"/"}, map[string]bool{"/": true}
	for n := 0; ; n++ {
		if len(next) == 0 {
			return n
		}
		path := next[0]
		next = next[1:]
		b.do("open "+path, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(b.p.URL+path), chromedp.WaitReady("body"))
		for _, link := range b.links() {
			kind := b.kind(link)
			if !seen[kind] && (who == "" || !forVisitors.MatchString(kind)) {
				seen[kind] = true
				next = append(next, link)
			}
		}
		b.prepare(path)
		document := prose.MatchString(path)
		elsewhere := who == "renter" && forOperators.MatchString(path)
		fully := !known[b.kind(path)] && !elsewhere && (!document || !known["prose"])
		for i, l := range looks {
			if l.contrast && !(fully && everyLook()) {
				continue
			}
			b.show(l)
			if i == 0 || fully && everyLook() {
				b.check(who, path, l)
			}
			b.fits(who, path, l)
			if fully && b.at(path) && !document && os.Getenv("MUSTER_TEST_SHOTS") != "" && b.kind(path) != "/clusters/*" {
				b.picture(path, l)
			}
		}
		if b.at(path) && !elsewhere {
			known[b.kind(path)] = true
			known["prose"] = known["prose"] || document
		}
	}
}

// highest is how much of a long page a picture shows, in CSS pixels.
const highest = 2600

// picture writes what the open page looks like into the folder of screenshots, as small as it stays legible.
func (b *tab) picture(path string, l look) {
	b.t.Helper()
	b.do("take a picture of "+path, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		height, err := chromedp.Evaluate[float64]("document.documentElement.scrollHeight")(ctx, t)
		if err != nil {
			return err
		}
		shot, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Format: "webp", Quality: new(int64(45)), CaptureBeyondViewport: new(true),
			Clip: &page.Viewport{Width: float64(l.width), Height: min(height, highest), Scale: 1},
		})
		if err != nil {
			return err
		}
		name := strings.Trim(strings.NewReplacer("/", "-", "*", "one").Replace(b.kind(path)), "-")
		file := fmt.Sprintf("%s-%d-%s.webp", cmp.Or(name, "front"), l.width, l.theme)
		return os.WriteFile(filepath.Join(b.shots, file), shot.Data, 0o644)
	}))
}

// at says whether the open page is the one at the path: a visitor is led from many pages to sign in.
func (b *tab) at(path string) bool {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	now, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location.pathname"))
	if err != nil {
		b.t.Fatal(err)
	}
	return now == path
}

// kind returns the kind of a page: one that the test has named, or kindOf.
func (b *tab) kind(path string) string { return cmp.Or(b.kinds[path], kindOf(path)) }

// kindOf returns what the path has in common with those of other pages of the same template.
func kindOf(path string) string {
	if folder := documents.FindString(path); folder != "" {
		return folder
	}
	return identifier.ReplaceAllString(path, "*")
}

// links returns the paths that the page links to, without those of files.
func (b *tab) links() []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll("a[href]:not([download])")]
		.filter(a => a.origin === location.origin).map(a => a.pathname)`))
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(p string) bool {
		last := p[strings.LastIndexByte(p, '/')+1:]
		return strings.Contains(last, ".") || strings.HasPrefix(p, "/api/") || strings.HasPrefix(p, "/sandbox/")
	})
}

// violation is what axe says of a rule that a page breaks.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		Target json.RawMessage `json:"target"`
		Why    string          `json:"failureSummary"`
	} `json:"nodes"`
}

// prepare loads axe into the open page and ends its transitions: axe would measure colours half-way from one theme to
// the other.
func (b *tab) prepare(path string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](axe+`
		;{
			const still = new CSSStyleSheet();
			still.replaceSync("*, ::before, ::after { transition: none !important; animation: none !important }");
			document.adoptedStyleSheets = [still];
		}
		true`)); err != nil {
		b.t.Fatalf("%s: %v", path, err)
	}
}

// show gives the open page a look, and waits for two frames: then the page has reacted to its new width.
func (b *tab) show(l look) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(l.width, 900)); err != nil {
		b.t.Fatal(err)
	}
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(`(async () => {
		document.documentElement.dataset.theme = %q;
		await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
		return true;
	})()`, l.theme), chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatalf("%s: %v", l, err)
	}
}

// check runs axe on the open page.
func (b *tab) check(who, path string, l look) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	rules := "{}"
	if l.contrast {
		rules = `{runOnly: ["color-contrast"]}`
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]violation](fmt.Sprintf(`(async () => {
		const {violations} = await axe.run(document, {resultTypes: ["violations"], ...%s});
		return violations.map(v => ({id: v.id, help: v.help,
			nodes: v.nodes.slice(0, 3).map(n => ({target: n.target, failureSummary: n.failureSummary}))}));
	})()`, rules), chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s at %s: %v", path, l, err)
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			b.t.Errorf("%s as %q at %s: %s (%s): %s %s", path, who, l, v.ID, v.Help, n.Target, n.Why)
		}
	}
}

// fits reports what of the open page is wider than the window.
func (b *tab) fits(who, path string, l look) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	wide, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`(() => {
		const width = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= width) return [];
		return [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > width)
			.slice(-3).map(e => e.outerHTML.slice(0, 120));
	})()`))
	if err != nil {
		b.t.Fatal(err)
	}
	if len(wide) > 0 {
		b.t.Errorf("%s as %q at %s: wider than the window: %q", path, who, l, wide)
	}
}
