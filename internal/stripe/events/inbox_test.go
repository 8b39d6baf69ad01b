package events

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func newInbox(t *testing.T) (*billingtest.World, *Inbox) {
	t.Helper()
	w := billingtest.New(t, dbtest.New(t))
	return w, New(w.DB, w.Stripe(nil, 0).Client, slog.New(slog.DiscardHandler))
}

// An event that always fails does not delay others, and becomes a dead letter after three days.
func TestProcess_FailingEvent(t *testing.T) {
	t.Parallel()
	w, in := newInbox(t)
	boss := w.Admin().Org
	in.Handle("dp_", func(context.Context, string) (string, error) { return "", errors.New("it always fails") })
	w.Exec("INSERT INTO stripe_event (id, type, object_id, created_at, attempts) VALUES ('evt_bad', 'x', 'dp_1', " +
		"clock_timestamp(), 1019)")
	w.Exec("INSERT INTO stripe_event (id, type, object_id, created_at) VALUES ('evt_good', 'x', 'cus_1', " +
		"clock_timestamp())")
	for range 3 {
		if _, err := in.Process(t.Context()); err == nil {
			t.Fatal("the failing event was processed")
		}
		w.Exec("UPDATE stripe_event SET next_at = clock_timestamp() WHERE id = 'evt_bad'")
	}
	var open int
	if err := w.DB.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM stripe_event WHERE processed_at IS NULL").Scan(&open); err != nil || open != 1 {
		t.Fatalf("%d events are open (%v), want 1", open, err)
	}
	w.Exec("UPDATE dead_letter SET failing_since = clock_timestamp() - interval '73 hours'")
	if _, err := in.Process(t.Context()); err == nil {
		t.Fatal("the failing event was processed")
	}
	var wait time.Duration
	if err := w.DB.Pool.QueryRow(t.Context(),
		"SELECT next_at - clock_timestamp() FROM stripe_event WHERE id = 'evt_bad'").Scan(&wait); err != nil ||
		wait < 23*time.Hour {
		t.Errorf("the next attempt is in %s (%v), want a day", wait, err)
	}
	rows, err := notify.NewNotices(w.DB).DeadLetters(t.Context(), 10)
	if err != nil || len(rows) != 1 || rows[0].Ref != "evt_bad" || rows[0].ParkedAt == nil {
		t.Errorf("dead letters: %+v (%v)", rows, err)
	}
	var notices int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND dedupe_key LIKE "+
		"'dead_letter:%'", boss).Scan(&notices); err != nil || notices != 1 {
		t.Errorf("%d notices to admins (%v), want 1", notices, err)
	}
}

// A delivery with a bad signature costs no database work.
func TestReceive_BadSignature(t *testing.T) {
	t.Parallel()
	w, in := newInbox(t)
	in.refusedNotified.Store("bad_signature", time.Now().UTC().Format(time.DateOnly)) // admins were notified today
	body := []byte(`{"id":"evt_1","type":"x","data":{"object":{"id":"pi_1"}}}`)
	before := w.DB.Pool.Stat().AcquireCount()
	for range 10 {
		if err := in.Receive(t.Context(), body, sandbox.Sign(body, "whsec_other", time.Now())); err == nil {
			t.Fatal("accepted")
		}
	}
	if n := w.DB.Pool.Stat().AcquireCount() - before; n != 0 {
		t.Errorf("ten bad deliveries took %d connections", n)
	}
}
