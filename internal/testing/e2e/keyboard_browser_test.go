package e2e

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"
)

// focus is what has the keyboard now.
type focus struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Shown bool   `json:"shown"` // it can be seen where one is
}

const focusNow = `(() => {
  const e = document.activeElement, s = getComputedStyle(e), box = e.closest(".query, .affix");
  const ring = (x) => x && getComputedStyle(x).outlineStyle !== "none" && getComputedStyle(x).outlineWidth !== "0px";
  return JSON.stringify({id: e.id,
    name: e.tagName + " " + (e.getAttribute("aria-label") || e.textContent.trim().slice(0, 40)),
    shown: e === document.body || ring(e) || ring(box)});
})()`

// nextStop presses Tab and says where that leads.
func (b *tab) nextStop() focus {
	b.t.Helper()
	b.do("press Tab", chromedp.KeyEvent(kb.Tab))
	return b.focused()
}

func (b *tab) focused() (f focus) {
	b.t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](focusNow))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(s), &f); err != nil {
		b.t.Fatal(err)
	}
	return f
}

// tabTo presses Tab until a field has the keyboard, and types.
func (b *tab) tabTo(id, text string) {
	b.t.Helper()
	for range 80 {
		if b.nextStop().ID == id {
			b.do("type", chromedp.KeyEvent(text))
			return
		}
	}
	b.t.Fatalf("the keyboard never reaches %q", id)
}

// TestTheKeyboardIsEnough signs up, searches and looks around without a mouse, and sees at every stop where it is.
func TestTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	b := p.browse(t)
	b.open("/signup")
	b.tabTo("name", "keys only")
	b.tabTo("email", uuid.NewString()+"@muster.example")
	b.tabTo("password", "a long enough sentence"+kb.Enter)
	b.reads(".who", "keys only")

	b.open("/offers")
	if f := b.nextStop(); f.Name != "A Skip to content" {
		t.Errorf("the first stop is %+v", f)
	}
	b.tabTo("q", "gpu_model=H100"+kb.Enter)
	b.see(".chip")
	stops := 0
	for range 120 {
		f := b.nextStop()
		if f.Name == "BODY " { // the page's end, or what had the keyboard is gone from the market
			continue
		}
		if f.ID == "" && stops > 10 && f.Name == "A Skip to content" {
			break
		}
		if stops++; !f.Shown {
			t.Errorf("nothing shows that the keyboard is at %+v", f)
		}
	}
	if stops < 20 {
		t.Errorf("only %d stops on the market's page", stops)
	}

	b.open("/account")
	b.tabTo("token_name", "laptop"+kb.Enter)
	eventually(t, "the token is shown", func() bool { return b.text("#new-token") != "" })
}
