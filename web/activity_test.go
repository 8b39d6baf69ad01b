package web_test

import (
	"context"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// The activity page says who did what on which cluster, in words, and leads to it; it is searched, and leads from the
// account's page.
func TestActivityOfAnOrganisation(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	org, cl := b.org(), id.New[id.Cluster]().String()
	if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, e := range []audit.Event{
			{
				Org:     org,
				Action:  "cluster.shell",
				Object:  cl,
				Detail:  map[string]any{"node": 3, "key": "SHA256:abc", "kind": "sftp"},
				Address: "192.0.2.7",
			},
			{Org: org, Action: "org.legal_set", Object: org.String()},
			{Org: id.New[id.Org](), Action: "payout.stop", Object: org.String(), Address: "192.0.2.99"},
		} {
			if err := audit.Record(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	_, doc := b.get("/account")
	if doc.Find(`a[href="/account/trail"]`).Length() == 0 {
		t.Error("the account's page does not lead to it")
	}
	_, doc = b.get("/account/trail")
	text := doc.Find("#acts").Text()
	for _, want := range []string{"Opened a shell, ran a command or moved files", "192.0.2.7", "SHA256:abc",
		"Set legal details"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q: %s", want, text)
		}
	}
	if strings.Contains(text, "192.0.2.99") || doc.Find(`#acts a[href^="/admin"]`).Length() != 0 {
		t.Errorf("it shows what is not the organisation's: %s", text)
	}
	if doc.Find(`#acts a[href="/clusters/`+cl+`"]`).Length() != 1 {
		t.Error("it does not lead to the cluster")
	}
	if _, doc = b.get("/account/trail?action=cluster&q=" + cl); doc.Find("#acts tbody tr").Length() != 1 {
		t.Errorf("searched: %s", doc.Find("#acts").Text())
	}
	if _, doc = b.get("/account/trail?q=nothing-like-it"); !strings.Contains(doc.Text(), "Nothing found") {
		t.Error("what is not there is not said to be not there")
	}
}
