package web_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// The market says who has scratch space, and can be asked for those who have enough.
func TestTheMarketSaysWhoHasScratch(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	if _, err := b.db.Pool.Exec(t.Context(), "UPDATE host SET scratch_gb = 1200"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		least  string
		offers int
	}{{"", 1}, {"1200", 1}, {"1201", 0}} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			// the view of the fleet is a second old
			_, doc := b.get("/offers/filter?scratch=" + c.least)
			text := doc.Find("main").Text()
			offers, says := doc.Find("td.c-add").Length(), strings.Contains(text, "1200 GB scratch")
			if offers == c.offers && says == (c.offers > 0) {
				if got := doc.Find("#f-scratch").AttrOr("value", "none"); got != c.least {
					t.Errorf("the filter shows %q, want %q", got, c.least)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v: %d offers: %s", c, offers, text)
			}
		}
	}
}

// A notice about a host stays on the host's page until its operator has read it.
func TestAHostsPageShowsWhatIsToldOfIt(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(1)
	var org id.Org
	var host id.Host
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT org_id, id FROM host").Scan(&org, &host); err != nil {
		t.Fatal(err)
	}
	err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for key, object := range map[string]string{"this": host.String(), "another": id.New[id.Host]().String()} {
			if _, err := notify.Add(ctx, tx, notify.Notice{
				Org:      org,
				Key:      key,
				Severity: notify.Bad,
				Object:   object,
				Title:    "Scratch failed on " + key,
				Body:     "Its disk is read-only.",
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page := "/hosts/" + host.String()
	_, doc := b.get(page)
	if text := doc.Find("main").Text(); !strings.Contains(text, "Scratch failed on this") ||
		!strings.Contains(text, "read-only") || strings.Contains(text, "failed on another") {
		t.Error(text)
	}
	read, ok := doc.Find(`main form[action^="/notices/"]`).Attr("action")
	if !ok {
		t.Fatal("it cannot be marked as read")
	}
	b.post(read, nil)
	_, doc = b.get(page)
	if text := doc.Find("main").Text(); strings.Contains(text, "Scratch failed") {
		t.Errorf("still told: %s", text)
	}
}
