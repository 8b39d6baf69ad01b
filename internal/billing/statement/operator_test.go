package statement_test

import (
	"context"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func (r *rental) operatorStatement(t *testing.T, change func(*statement.OperatorRequest)) statement.OperatorPeriod {
	t.Helper()
	p, err := r.tryOperatorStatement(t, change)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (r *rental) tryOperatorStatement(t *testing.T,
	change func(*statement.OperatorRequest)) (statement.OperatorPeriod, error) {
	t.Helper()
	q := statement.OperatorRequest{
		Org:      r.operator,
		Currency: "EUR",
		From:     time.Now().AddDate(0, 0, -3).Format(time.DateOnly),
		To:       time.Now().AddDate(0, 0, 1).Format(time.DateOnly),
		Holdback: time.Hour,
	}
	if change != nil {
		change(&q)
	}
	return statement.New(r.DB, "EUR", statement.Party{}).OperatorStatement(t.Context(), q)
}

// Whatever it is summed by, an operator's statement adds up to what the ledger holds for them and for the platform.
func TestOperator_AddsUp(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 2_000, ranMS)
	r.prove(t, 1, 1_500, ranMS-4_200)
	r.end(t)
	balance := func(a ledger.Account) money.Nano {
		t.Helper()
		n, err := ledger.Balance(t.Context(), r.DB.Q, a)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	earned, fee := balance(ledger.HostPending(r.operator, "EUR")), balance(ledger.Fee("EUR"))
	for _, by := range []string{"", "host", "day", "lease"} {
		p := r.operatorStatement(t, func(q *statement.OperatorRequest) { q.By = by })
		var groups, lines money.Nano
		for _, g := range p.Groups {
			if g.Billed != g.Fee+g.Earned {
				t.Errorf("%+v", g)
			}
			groups += g.Earned
		}
		for _, l := range p.Lines {
			if l.Billed != l.Fee+l.Earned {
				t.Errorf("%+v", l)
			}
			lines += l.Earned
		}
		if p.Earned != earned || p.Fee != fee || p.Billed != earned+fee || groups != earned || lines != earned ||
			p.Net != earned || p.EnergyWh != "418.872" {
			t.Errorf("by %q: %+v", by, p)
		}
		var held money.Nano
		for _, l := range p.Leases {
			if held += l.InHoldback; l.InHoldback != l.Earned || l.NotBooked != 0 || l.PayableAt == nil || !l.Settled {
				t.Errorf("%+v", l)
			}
		}
		if held != earned {
			t.Errorf("in the holdback: %s of %s", held, earned)
		}
	}
	for _, l := range r.operatorStatement(t, func(q *statement.OperatorRequest) { q.Holdback = 0 }).Leases {
		if l.InHoldback != 0 || l.PayableAt != nil {
			t.Errorf("nothing waits: %+v", l)
		}
	}
	r.giveBackPart(t, earned)

	one := r.operatorStatement(t, func(q *statement.OperatorRequest) { q.Host = r.host })
	if one.Earned != earned || one.Returned == 0 {
		t.Errorf("of its host: %+v", one)
	}
	if none := r.operatorStatement(t, func(q *statement.OperatorRequest) { q.Org = r.renter }); none.Billed != 0 ||
		len(none.Leases) != 0 || len(none.Returns) != 0 {
		t.Errorf("of another org: %+v", none)
	}
	for kind, change := range map[fault.Kind]func(*statement.OperatorRequest){
		fault.NotFound: func(q *statement.OperatorRequest) { q.Org, q.Host = r.renter, r.host },
		fault.Invalid:  func(q *statement.OperatorRequest) { q.By = "moon" },
	} {
		if _, err := r.tryOperatorStatement(t, change); !fault.Is(err, kind) {
			t.Errorf("want %s: %v", kind, err)
		}
	}
}

// What is measured and not booked yet is shown with what is booked: statement, payouts and the ledger agrees on both.
func TestOperator_NotBookedYet(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 2_000, ranMS) // less than is booked at once
	r.prove(t, 1, 1_500, ranMS-4_200)
	check := func(when string, running bool) {
		t.Helper()
		p := r.operatorStatement(t, nil)
		var held, notYet money.Nano
		for _, l := range p.Leases {
			held, notYet = held+l.InHoldback, notYet+l.NotBooked
			if l.InHoldback+l.NotBooked != l.Earned || l.Earned == 0 || l.PayableAt == nil {
				t.Errorf("%s: %+v", when, l)
			}
		}
		booked, err := ledger.Balance(t.Context(), r.DB.Q, ledger.HostPending(r.operator, "EUR"))
		if err != nil {
			t.Fatal(err)
		}
		measured, err := metering.OperatorUnposted(t.Context(), r.DB.Q, r.operator)
		if err != nil {
			t.Fatal(err)
		}
		if held != booked || notYet != measured || (notYet > 0) != running || len(p.Leases) != 2 {
			t.Errorf("%s: %d leases, %s in the holdback of %s booked, %s of %s not booked", when, len(p.Leases), held, booked,
				notYet, measured)
		}
		if n, err := metering.OperatorUnposted(t.Context(), r.DB.Q, r.renter); err != nil || n != 0 {
			t.Errorf("%s: of somebody without hosts: %s, %v", when, n, err)
		}
	}
	check("running", true)
	r.end(t)
	check("ended", false)
}

// giveBackPart compensates one charge and finds it on the statement, which still agrees with the ledger.
func (r *rental) giveBackPart(t *testing.T, earned money.Nano) {
	t.Helper()
	charges, err := ledger.Search(t.Context(), r.DB.Q, r.cluster.String(), id.LedgerTx{}, 50)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range charges {
		if c.Kind == "usage" {
			r.Tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := ledger.Compensate(ctx, tx, c.ID, 1_000_000, "=an outage")
				return err
			})
			break
		}
	}
	p := r.operatorStatement(t, nil)
	now, err := ledger.Balance(t.Context(), r.DB.Q, ledger.HostPending(r.operator, "EUR"))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Returns) != 1 || p.Returns[0].Lease == "" || p.Returned != earned-now || p.Net != now || p.Earned != earned {
		t.Errorf("after a compensation: %+v, pending %s", p, now)
	}
	var b strings.Builder
	if err := p.CSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(rows) != 1+len(p.Lines)+1 || rows[len(rows)-1][3] != "'=an outage" {
		t.Fatal(rows, err)
	}
	var sum money.Nano
	for _, row := range rows[1:] {
		sign, text := money.Nano(1), row[12]
		if rest, minus := strings.CutPrefix(text, "-"); minus {
			sign, text = -1, rest
		}
		n, err := money.ParseNano(text)
		if err != nil {
			t.Fatal(err)
		}
		sum += sign * n
	}
	if sum != p.Net {
		t.Errorf("the column adds up to %s, net is %s", sum, p.Net)
	}
}

// A frozen lease is marked: nothing of it becomes payable.
func TestOperator_MarksFrozen(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 0, 300_000)
	lie := r.sign(agentapi.Segment{Lease: r.leases[0].String(), Seq: 1, StartMS: r.start, EndMS: r.start + 200_000})
	if _, err := metering.NewCollector(r.DB).Ingest(t.Context(), r.host, []agentapi.Segment{lie}, nil); err != nil {
		t.Fatal(err)
	}
	p := r.operatorStatement(t, nil)
	if len(p.Leases) != 2 || !p.Leases[0].Frozen || p.Leases[1].Frozen || p.Leases[0].Settled {
		t.Errorf("%+v", p.Leases)
	}
}
