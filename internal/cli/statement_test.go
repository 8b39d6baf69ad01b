package cli

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

func TestStatementsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	var own id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT id FROM org").Scan(&own); err != nil {
		t.Fatal(err)
	}
	other, _ := fleettest.Org(t, p.db)
	rented, sold := meteringtest.New(t, p.db, own, other, "USD"), meteringtest.New(t, p.db, other, own, "USD")
	rented.Run(100_001)
	sold.Run(200_002)
	bill, _ := meteringtest.Cost(100_001)
	billed, earned := meteringtest.Cost(200_002)
	day := func(n int) string { return time.Now().UTC().AddDate(0, 0, n).Format(time.DateOnly) }
	days := []string{"--from", day(-2), "--to", day(1)}

	if out := p.ok(append([]string{"statement", "--by", "day"}, days...)...); !strings.Contains(out, bill.String()) ||
		!strings.Contains(out, "100.001") {
		t.Error(out)
	}
	if v := p.json(append([]string{"statement"}, days...)...); v["total"] != bill.String() ||
		len(v["lines"].([]any)) != 1 {
		t.Error(v)
	}
	if rows := table(t, p.ok(append([]string{"statement", "--csv"}, days...)...)); len(rows) != 2 ||
		rows[1][11] != bill.String() {
		t.Error(rows)
	}
	out := p.ok(append([]string{"host", "statement", "--by", "lease"}, days...)...)
	for _, want := range []string{billed.String(), (billed - earned).String(), earned.String(), "holdback of 7d"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing: %s", want, out)
		}
	}
	if v := p.json(append([]string{"host", "statement", sold.Host.String()}, days...)...); v["net"] != earned.String() {
		t.Error(v)
	}
	if rows := table(t, p.ok(append([]string{"host", "statement", "--csv"}, days...)...)); len(rows) != 2 ||
		rows[1][12] != earned.String() {
		t.Error(rows)
	}
	if r := p.run("", "host", "statement", rented.Host.String()); r.code != 3 {
		t.Errorf("another's host: exit %d %s", r.code, r.errs)
	}
	if out := p.ok("statement", "--month", "2024-02"); !strings.Contains(out, "2024-02-01 to 2024-02-29") {
		t.Error(out)
	}
	for _, wrong := range []string{"--month 2024-13", "--month 2024-02 --from 2024-02-01", "--csv --by day", "--by moon",
		"--from yesterday"} {
		if r := p.run("", append([]string{"statement"}, strings.Fields(wrong)...)...); r.code != 2 {
			t.Errorf("%s: exit %d %s", wrong, r.code, r.errs)
		}
	}
}

func table(t *testing.T, text string) [][]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err, text)
	}
	return rows
}
