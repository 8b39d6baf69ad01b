package notify

import (
	"errors"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testing/dbtest"
)

// A row that fails is retried less and less often, and after three days once a day; administrators are notified once,
// and the entry disappears when the row is processed.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO org (id, name, personal) VALUES ('00000000-0000-7000-8000-000000000001', 'o', true)`)
	exec(`INSERT INTO app_user (id, email, password_hash, admin) VALUES ('00000000-0000-7000-8000-000000000002', 'a@b.c',
		'x', true)`)
	exec(`INSERT INTO membership (org_id, user_id, role) VALUES ('00000000-0000-7000-8000-000000000001',
		'00000000-0000-7000-8000-000000000002', 'owner')`)
	fail := func() time.Duration {
		t.Helper()
		wait, err := DeadLetter(t.Context(), d, "job", "row", errors.New("it does not work"))
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
		if got := fail(); got != want {
			t.Fatalf("attempt %d: wait %s, want %s", i+1, got, want)
		}
	}
	exec("UPDATE dead_letter SET attempts = 2000000000")
	if got := fail(); got != time.Hour {
		t.Fatal("after many attempts", got)
	}
	for range 2 {
		exec("UPDATE dead_letter SET failing_since = clock_timestamp() - interval '73 hours'")
		if got := fail(); got != 24*time.Hour {
			t.Fatal("after three days", got)
		}
	}
	var notices int
	if err := d.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM notice WHERE dedupe_key = 'dead_letter:job:row'").Scan(&notices); err != nil || notices != 1 {
		t.Fatal(notices, err)
	}
	rows, err := NewNotices(d).DeadLetters(t.Context(), 10)
	if err != nil || len(rows) != 1 || rows[0].Ref != "row" || rows[0].Error != "it does not work" ||
		rows[0].ParkedAt == nil {
		t.Fatalf("%+v %v", rows, err)
	}
	if err := DropDeadLetter(t.Context(), d.Q, "job", "row"); err != nil {
		t.Fatal(err)
	}
	if rows, err := NewNotices(d).DeadLetters(t.Context(), 10); err != nil || len(rows) != 0 {
		t.Fatalf("%+v %v", rows, err)
	}
}
