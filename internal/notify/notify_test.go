package notify_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestNotice_OncePerCause(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, other := id.New[id.Org](), id.New[id.Org]()
	for _, o := range []id.Org{org, other} {
		if err := d.Q.InsertOrg(t.Context(), o, "o", true); err != nil {
			t.Fatal(err)
		}
	}
	add := func(o id.Org, key string) (added bool) {
		t.Helper()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			added, err = notify.Add(ctx, tx, notify.Notice{
				Org:      o,
				Key:      key,
				Severity: notify.Warn,
				Title:    "Credit for an hour is left",
				Body:     "Top up.",
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return added
	}
	if !add(org, "runway:1h") || add(org, "runway:1h") || !add(org, "runway:10m") || !add(other, "runway:1h") {
		t.Error("not one notice per org and cause")
	}
	list, err := notify.List(t.Context(), d.Q, org, notify.Filter{Unread: true, Limit: 10})
	if err != nil || len(list) != 2 || list[0].Key != "runway:10m" {
		t.Fatalf("%+v %v", list, err)
	}
	read := func(o id.Org) error {
		return notify.NewNotices(d).MarkRead(t.Context(), o, list[0].ID)
	}
	if err := read(other); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org's notice: %v", err)
	}
	if err := read(org); err != nil {
		t.Fatal(err)
	}
	if left, err := notify.List(t.Context(), d.Q, org, notify.Filter{
		Unread: true,
		Limit:  10,
	}); err != nil || len(left) != 1 {
		t.Errorf("%+v %v", left, err)
	}
	if page, err := notify.List(t.Context(), d.Q, org, notify.Filter{
		After: list[0].ID,
		Limit: 10,
	}); err != nil || len(page) != 1 || page[0].ID != list[1].ID {
		t.Errorf("%+v %v", page, err)
	}
}

// What warned of an object is withdrawn when the object has ended. What happened to it stays, and so does what is said
// of other objects and to other organisations.
func TestForecastsAreWithdrawn(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, other := id.New[id.Org](), id.New[id.Org]()
	for _, o := range []id.Org{org, other} {
		if err := d.Q.InsertOrg(t.Context(), o, "o", true); err != nil {
			t.Fatal(err)
		}
	}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, n := range []notify.Notice{
			{Org: org, Key: "runway:cl_1", Object: "cl_1", Forecast: true},
			{Org: org, Key: "credit:cl_1", Object: "cl_1"},
			{Org: org, Key: "runway:cl_2", Object: "cl_2", Forecast: true},
			{Org: other, Key: "runway:cl_1", Object: "cl_1", Forecast: true},
		} {
			n.Severity = notify.Warn
			if _, err := notify.Add(ctx, tx, n); err != nil {
				return err
			}
		}
		return notify.Withdraw(ctx, tx, org, "cl_1")
	})
	if err != nil {
		t.Fatal(err)
	}
	for o, want := range map[id.Org][]string{org: {"runway:cl_2", "credit:cl_1"}, other: {"runway:cl_1"}} {
		list, err := notify.List(t.Context(), d.Q, o, notify.Filter{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range list {
			got = append(got, n.Key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
