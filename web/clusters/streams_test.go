package clusters

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/web/page"
)

// TestALineCannotForgeAnEvent: a carriage return ends a line of an event stream too, so text with one would begin a
// field of its own; and a progress bar that overwrites itself with them would be cut.
func TestALineCannotForgeAnEvent(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	if err := openEvents(w).send("line", "<p>x\r\revent: ended\rdata: FORGED</p>\n<p>10%\r\n100%</p>"); err != nil {
		t.Fatal(err)
	}
	got := w.Body.String()
	if strings.ContainsRune(got, '\r') {
		t.Errorf("%q", got)
	}
	for l := range strings.Lines(strings.TrimSuffix(got, "\n")) {
		if !strings.HasPrefix(l, "data: ") && l != "event: line\n" {
			t.Errorf("a line of its own: %q", l)
		}
	}
}

func TestLivePagesPerUserAreBounded(t *testing.T) {
	t.Parallel()
	var s streams
	ada, eve := id.New[id.User](), id.New[id.User]()
	var leave []func()
	for range maxStreams {
		l, ok := s.enter(ada)
		if !ok {
			t.Fatal("refused too early")
		}
		leave = append(leave, l)
	}
	if _, ok := s.enter(ada); ok {
		t.Error("one more was let in")
	}
	if _, ok := s.enter(eve); !ok {
		t.Error("another user was refused")
	}
	leave[0]()
	if _, ok := s.enter(ada); !ok {
		t.Error("a place that was left is not free")
	}
}

// Every live page takes its place when it opens: the user who has none left is refused.
func TestAPageTakesItsPlaceWhenItOpens(t *testing.T) {
	t.Parallel()
	s := &Pages{Site: page.New(page.Config{Nouns: nouns.Nouns{
		Accounts: account.New(nil, account.Config{RecheckEvery: time.Hour}),
	}})}
	user := id.New[id.User]()
	page := func() (leave func(), err error) {
		v := &page.Visit{R: httptest.NewRequest("GET", "/", nil), Who: account.Principal{User: user}}
		_, leave, err = s.openStream(v)
		return leave, err
	}
	var leave func()
	for range maxStreams {
		var err error
		if leave, err = page(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := page(); !fault.Is(err, fault.RateLimited) {
		t.Errorf("page %d of one user: %v", maxStreams+1, err)
	}
	leave()
	if _, err := page(); err != nil {
		t.Errorf("a place that was left is not free: %v", err)
	}
}
