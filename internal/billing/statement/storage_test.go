package statement_test

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// stored gives the renter volumes that share so many bytes, stored for three hours and not charged yet.
func (r *rental) stored(bytes int64, names ...string) {
	domain := id.New[id.DataDomain]()
	r.Exec("INSERT INTO data_domain (id, org_id, key_sealed, bytes) VALUES ($1, $2, '\\x01', $3)", domain, r.renter,
		bytes)
	for _, n := range names {
		r.Exec("INSERT INTO volume (id, org_id, domain_id, name, size_limit, keep_last, created_by) VALUES ($1, $2, $3, "+
			"$4, 1, 1, $1)", id.New[id.Volume](), r.renter, domain, n)
	}
	r.Exec("INSERT INTO data_level (domain_id, from_at, bytes) VALUES ($1, clock_timestamp() - interval '3 hours', $2)",
		domain, bytes)
	r.Exec("INSERT INTO data_meter (domain_id, through_at) VALUES ($1, clock_timestamp() - interval '3 hours')", domain)
}

// What volumes store is on the statement, in every grouping, on paper and in the table, and with it the statement adds
// up to what left the wallet.
func TestStatement_HasStorage(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 0, ranMS)
	r.prove(t, 1, 0, ranMS-4_200)
	r.end(t)
	r.stored(2000*volume.GB, "training", "training-2")
	r.stored(7, "little")
	r.stored(3*volume.GB, "=cmd")
	vols := volume.New(r.DB, nil, volume.Config{Currency: "EUR", PricePerGBHour: 68_493})
	if n, err := vols.Meters.Charge(t.Context()); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	spent := 100*money.Unit - r.balance(t).Available
	s := statement.New(r.DB, "EUR", statement.Party{})
	for _, by := range []string{"", "day", "project", "person", "lease", "label:team"} {
		p, err := s.Statement(t.Context(), r.renter, time.Now().AddDate(0, 0, -3).Format(time.DateOnly), "", by)
		if err != nil {
			t.Fatal(err)
		}
		var groups, lines money.Nano
		hours := ""
		for _, g := range p.Groups {
			groups += g.Cost
			if strings.HasPrefix(g.Name, "Storage of training") || by == "day" {
				hours = max(hours, g.GBHours)
			}
		}
		for _, l := range p.Lines {
			lines += l.Cost
		}
		for _, l := range p.Storage {
			lines += l.Cost
		}
		if p.Total != spent || groups != spent || lines != spent || !strings.HasPrefix(hours, "600") {
			t.Errorf("by %q: %s GB-hours, total %s, groups %s, lines %s, spent %s", by, hours, p.Total, groups, lines, spent)
		}
		// The 7 bytes cost less than a nano-unit so far.
		if len(p.Storage) != 2 || p.Storage[0].Volume != "training, training-2" ||
			!strings.HasPrefix(p.Storage[0].GBHours, "6000.") || !strings.HasPrefix(p.Storage[1].GBHours, "9.0") {
			t.Errorf("by %q: %+v", by, p.Storage)
		}
		var b strings.Builder
		if err := p.CSV(&b); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
		if err != nil || len(rows) != 1+len(p.Lines)+2 {
			t.Fatal(rows, err)
		}
		if last := rows[len(rows)-1]; last[11] != p.Storage[1].Cost.String() || last[13] != "'=cmd" ||
			last[14] != p.Storage[1].GBHours {
			t.Errorf("%q", last)
		}
	}
	var usage money.Nano
	now := time.Now()
	for _, month := range []time.Time{now.AddDate(0, 0, -now.Day()), now} {
		v, err := s.InvoiceOf(t.Context(), r.renter, "Ada", month.Format("2006-01"))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range v.Lines {
			usage += l.Cost
		}
	}
	if usage != spent {
		t.Errorf("monthly statements have %s, %s was spent", usage, spent)
	}
}

// Who only stored gets a monthly statement, too.
func TestInvoice_IssuedToWhoOnlyStores(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.renter = r.Org()
	r.stored(volume.GB, "data")
	r.Exec("UPDATE data_domain SET created_at = created_at - interval '70 days' WHERE org_id = $1", r.renter)
	s := statement.New(r.DB, "EUR", statement.Party{})
	before, err := s.IssueInvoices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Exec("UPDATE data_meter SET steps = 1")
	after, err := s.IssueInvoices(t.Context())
	if err != nil || after <= before {
		t.Errorf("%d, then %d months are looked at: %v", before, after, err)
	}
}
