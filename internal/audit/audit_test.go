package audit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/dbtest"
	"github.com/musterhq/muster/internal/id"
)

func TestTrailStandsAndFallsWithTheAct(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := id.New[id.Org](), id.New[id.User]()
	act := func(action string, end error) {
		t.Helper()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			e := audit.Event{Org: org, User: user, Action: action, Object: "cl_x", Detail: map[string]any{"nodes": 2.0}, Address: "192.0.2.1"}
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
	if err != nil || len(trail) != 2 || trail[0].Action != "cluster.release" || trail[1].Detail["nodes"] != 2.0 || trail[1].User != user {
		t.Fatalf("%+v %v", trail, err)
	}
	if rest, err := audit.List(t.Context(), d.Q, org, trail[0].ID, 10); err != nil || len(rest) != 1 || rest[0].Action != "cluster.rent" {
		t.Errorf("second page: %+v %v", rest, err)
	}
	if other, err := audit.List(t.Context(), d.Q, id.New[id.Org](), id.Audit{}, 10); err != nil || len(other) != 0 {
		t.Errorf("another org sees %+v, %v", other, err)
	}
}
