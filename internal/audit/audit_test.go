package audit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestRecord_RolledBackWithTheTransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := id.New[id.Org](), id.New[id.User]()
	act := func(action string, end error) {
		t.Helper()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			e := audit.Event{
				Org:     org,
				User:    user,
				Action:  action,
				Object:  "cl_x",
				Detail:  map[string]any{"nodes": 2.0},
				Address: "192.0.2.1",
			}
			return errors.Join(audit.Record(ctx, tx, e), end)
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	act("cluster.rent", nil)
	act("cluster.release", errors.New("rolled back"))
	act("cluster.release", nil)

	trail, err := audit.List(t.Context(), d.Q, org, id.Audit{}, 10)
	if err != nil || len(trail) != 2 || trail[0].Action != "cluster.release" || trail[1].Detail["nodes"] != 2.0 ||
		trail[1].User != user {
		t.Fatalf("%+v %v", trail, err)
	}
	if rest, err := audit.List(t.Context(), d.Q, org, trail[0].ID, 10); err != nil || len(rest) != 1 ||
		rest[0].Action != "cluster.rent" {
		t.Errorf("second page: %+v %v", rest, err)
	}
	if other, err := audit.List(t.Context(), d.Q, id.New[id.Org](), id.Audit{}, 10); err != nil || len(other) != 0 {
		t.Errorf("another org sees %+v, %v", other, err)
	}
}

// An org's own people see what it did, by whom, and search it; never what another did, though it was done to them.
func TestOwn(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	boss, org, user := id.New[id.Org](), id.New[id.Org](), id.New[id.User]()
	if _, err := d.Pool.Exec(t.Context(), "INSERT INTO app_user (id, email, password_hash) VALUES ($1, "+
		"'mira@renter.example', '')", user); err != nil {
		t.Fatal(err)
	}
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, e := range []audit.Event{
			{Org: org, Action: "cluster.rent", Object: "cl_x"},
			{
				Org:     org,
				User:    user,
				Action:  "cluster.shell",
				Object:  "cl_x",
				Detail:  map[string]any{"node": 1, "key": "SHA256:abc"},
				Address: "192.0.2.1",
			},
			{Org: org, User: user, Action: "token.create", Object: "tok_x"},
			{
				Org:    boss,
				User:   user,
				Action: "payout.stop",
				Object: org.String(),
				Detail: map[string]any{"org": org.String(), "reason": "cl_x"},
			},
			{Action: "user.admin", Detail: map[string]any{"email": "mira@renter.example"}},
		} {
			if err := audit.Record(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f    audit.Filter
		want int
	}{
		"all":                {audit.Filter{Org: org}, 3},
		"nobody's":           {audit.Filter{Org: id.New[id.Org]()}, 0},
		"without an org":     {audit.Filter{}, 0},
		"a noun":             {audit.Filter{Org: org, Action: "cluster"}, 2},
		"a word":             {audit.Filter{Org: org, Action: "cluster.shell"}, 1},
		"an object":          {audit.Filter{Org: org, Words: "cl_x"}, 2},
		"who":                {audit.Filter{Org: org, Words: "Mira@"}, 2},
		"a key":              {audit.Filter{Org: org, Words: "sha256:ABC"}, 1},
		"what others did":    {audit.Filter{Org: org, Action: "payout"}, 0},
		"words of another's": {audit.Filter{Org: org, Words: org.String()}, 0},
	} {
		if got, err := audit.Own(t.Context(), d.Q, c.f, id.Audit{}, 10); err != nil || len(got) != c.want {
			t.Errorf("%s: %d, want %d: %+v %v", name, len(got), c.want, got, err)
		}
	}
	got, err := audit.Own(t.Context(), d.Q, audit.Filter{Org: org, Action: "cluster.shell"}, id.Audit{}, 1)
	if err != nil || len(got) != 1 || got[0].Email != "mira@renter.example" || got[0].Address != "192.0.2.1" ||
		got[0].Detail["node"] != 1.0 {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err = audit.Own(t.Context(), d.Q, audit.Filter{Org: org}, got[0].ID, 5); err != nil || len(got) != 1 ||
		got[0].Action != "cluster.rent" {
		t.Errorf("the second page: %+v %v", got, err)
	}
}

// The audit log is searched by actor, action, object and words of the details; an org's also holds what was done to
// it.
func TestSearch(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	boss, org, user := id.New[id.Org](), id.New[id.Org](), id.New[id.User]()
	for _, sql := range []string{"INSERT INTO org (id, name, personal) VALUES ($1, 'Platform', false)"} {
		if _, err := d.Pool.Exec(t.Context(), sql, boss); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Pool.Exec(t.Context(), "INSERT INTO app_user (id, email, password_hash) VALUES ($1, "+
		"'ann@platform.example', '')", user); err != nil {
		t.Fatal(err)
	}
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, e := range []audit.Event{
			{Org: org, Action: "cluster.rent", Object: "cl_x"},
			{
				Org:    boss,
				User:   user,
				Action: "payout.stop",
				Object: org.String(),
				Detail: map[string]any{"reason": "A stolen card, 100 %"},
			},
			{
				Org:    boss,
				User:   user,
				Action: "payout.review_release",
				Object: "rev_x",
				Detail: map[string]any{"org": "org_y", "renter": org.String()},
			},
			{Org: boss, User: user, Action: "payouts.other", Detail: map[string]any{"org": org.String()}},
		} {
			if err := audit.Record(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f    audit.Filter
		want int
	}{
		"all":              {audit.Filter{}, 4},
		"an org's":         {audit.Filter{Org: org}, 4},
		"another's":        {audit.Filter{Org: id.New[id.Org]()}, 0},
		"a noun":           {audit.Filter{Action: "payout"}, 2},
		"a word":           {audit.Filter{Action: "payout.stop"}, 1},
		"an object":        {audit.Filter{Words: "cl_x"}, 1},
		"who":              {audit.Filter{Words: "Ann@"}, 3},
		"of the details":   {audit.Filter{Words: "stolen CARD, 100 %"}, 1},
		"nothing":          {audit.Filter{Words: "_%"}, 0},
		"both":             {audit.Filter{Org: org, Action: "payout", Words: "ann@platform"}, 2},
		"not of this noun": {audit.Filter{Action: "pay"}, 0},
	} {
		if got, err := audit.Search(t.Context(), d.Q, c.f, id.Audit{}, 10); err != nil || len(got) != c.want {
			t.Errorf("%s: %d, want %d: %+v %v", name, len(got), c.want, got, err)
		}
	}
	got, err := audit.Search(t.Context(), d.Q, audit.Filter{Action: "payout"}, id.Audit{}, 1)
	if err != nil || len(got) != 1 || got[0].Email != "ann@platform.example" || got[0].OrgName != "Platform" ||
		got[0].Detail["renter"] != org.String() {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err = audit.Search(t.Context(), d.Q, audit.Filter{Action: "payout"}, got[0].ID, 5); err != nil ||
		len(got) != 1 || got[0].Action != "payout.stop" {
		t.Errorf("the second page: %+v %v", got, err)
	}
}
