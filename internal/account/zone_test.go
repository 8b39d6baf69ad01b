package account_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Every zone that can be chosen is known to Go and to PostgreSQL: one that either lacks would break statements.
func TestZonesAreKnownEverywhere(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	known := map[string]bool{}
	rows, err := d.Pool.Query(t.Context(), "SELECT name FROM pg_timezone_names")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		known[name] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	zones := account.Zones()
	if len(zones) < 400 || zones[0] != "UTC" {
		t.Fatal(len(zones), zones[0])
	}
	for _, z := range zones {
		if _, err := time.LoadLocation(z); err != nil {
			t.Error(err)
		}
		if !known[z] {
			t.Errorf("PostgreSQL does not know %s", z)
		}
	}
}

func TestAnOrgsZone(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	p := register(t, a, "ada@example.com")
	zone := func() string {
		t.Helper()
		z, err := account.ZoneOf(t.Context(), d.Q, p.Org)
		if err != nil {
			t.Fatal(err)
		}
		return z.String()
	}
	if zone() != "UTC" {
		t.Error(zone())
	}
	for _, bad := range []string{"", "Local", "Mars/Phobos", "europe/berlin", "../etc/passwd", "posix/Europe/Berlin",
		"right/UTC", "EST5EDT", "+01:00", "Europe/Berlin\x00"} {
		if err := a.SetZone(t.Context(), p, bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for range 2 { // the second time nothing changes, and nothing is recorded
		if err := a.SetZone(t.Context(), p, "Pacific/Auckland"); err != nil {
			t.Fatal(err)
		}
	}
	if zone() != "Pacific/Auckland" {
		t.Error(zone())
	}
	events, err := audit.Own(t.Context(), d.Q, audit.Filter{Org: p.Org, Action: "org.zone_set"}, id.Audit{}, 10)
	if err != nil || len(events) != 1 || events[0].Detail["zone"] != "Pacific/Auckland" {
		t.Error(events, err)
	}
}
