package ledger

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// The ledger of a period is the same entries in every list and total: those whose batch was made in it. Totals of
// closed days are read as they were frozen.

// Report is the ledger of a period; see client.LedgerReport.
type Report = client.LedgerReport

// KindPeriod is all accounts of a kind in a period.
type KindPeriod = client.KindPeriod

// Flow is what entries of a kind moved between two kinds of accounts in a month.
type Flow = client.LedgerFlow

// KindOfSales is what was sold by entries of a kind.
type KindOfSales = client.KindOfSales

// JournalEntry is an entry of the journal.
type JournalEntry = client.JournalEntry

// OrgMoney is what an organisation had at the end of a day.
type OrgMoney = client.OrgMoney

// Days are the first and the last day of a period, in UTC.
type Days struct{ From, To time.Time }

// ParseDays reads two days such as 2026-11-01; the same day twice is that day. Fault: Invalid.
func ParseDays(from, to string) (Days, error) {
	var bad fault.Fields
	var d Days
	var err error
	if d.From, err = time.Parse(time.DateOnly, from); err != nil {
		bad.Add("from", "must be a day, such as 2026-11-01")
	}
	if d.To, err = time.Parse(time.DateOnly, to); err != nil {
		bad.Add("to", "must be a day, such as 2026-11-30")
	}
	if bad.Err() == nil && d.To.Before(d.From) {
		bad.Add("to", "is before from")
	}
	return d, bad.Err()
}

// batches returns the last batch before the days, and the last one of them.
func (d Days) batches(ctx context.Context, q *dbq.Queries) (after, through int64, err error) {
	if after, err = q.LedgerBatchBefore(ctx, d.From); err != nil {
		return 0, 0, fmt.Errorf("read the batches of a period: %w", err)
	}
	if through, err = q.LedgerBatchBefore(ctx, d.To.AddDate(0, 0, 1)); err != nil {
		return 0, 0, fmt.Errorf("read the batches of a period: %w", err)
	}
	return after, through, nil
}

// ReportOf returns the balances of a period by kind of account, what moved between them, and what was sold. q should be
// a snapshot.
func ReportOf(ctx context.Context, q *dbq.Queries, d Days) (Report, error) {
	r := Report{From: d.From.Format(time.DateOnly), To: d.To.Format(time.DateOnly), Accounts: []KindPeriod{},
		Flows: []Flow{}, Turnover: []KindOfSales{}}
	after, through, err := d.batches(ctx, q)
	if err != nil {
		return r, err
	}
	opening, err := q.LedgerKindsAt(ctx, after)
	if err != nil {
		return r, fmt.Errorf("read opening balances: %w", err)
	}
	flows, err := q.LedgerFlows(ctx, through, after)
	if err != nil {
		return r, fmt.Errorf("read flows: %w", err)
	}
	closing, err := q.LedgerKindsAt(ctx, through)
	if err != nil {
		return r, fmt.Errorf("read closing balances: %w", err)
	}
	moves := make([]flow, len(flows))
	for i, f := range flows {
		moves[i] = flow{f.Kind, Kind(f.DebitKind), Kind(f.CreditKind), f.Currency, integer(f.Amount)}
		r.Flows = append(r.Flows, Flow{Month: f.Month, Kind: f.Kind, Debit: f.DebitKind, Credit: f.CreditKind,
			Currency: f.Currency, Transfers: f.Transfers, Amount: decimal(integer(f.Amount))})
	}
	open, end := map[kindOf]*big.Int{}, map[kindOf]*big.Int{}
	for _, x := range opening {
		open[kindOf{Kind(x.Kind), x.Currency}] = integer(x.Amount)
	}
	for _, x := range closing {
		end[kindOf{Kind(x.Kind), x.Currency}] = integer(x.Amount)
	}
	r.Accounts, r.Turnover = accountsOf(open, end, moves), turnover(moves)
	return r, nil
}

// flow is what entries of a kind moved from one kind of account to another.
type flow struct {
	entry         string
	debit, credit Kind
	currency      string
	amount        *big.Int
}

// kindOf is all accounts of a kind in a currency.
type kindOf struct {
	kind     Kind
	currency string
}

// accountsOf puts the balances of each kind of account next to what moved in between.
func accountsOf(opening, closing map[kindOf]*big.Int, moves []flow) []KindPeriod {
	type row struct{ debits, credits *big.Int }
	rows := map[kindOf]row{}
	of := func(k kindOf) row {
		if _, ok := rows[k]; !ok {
			rows[k] = row{new(big.Int), new(big.Int)}
		}
		return rows[k]
	}
	for k := range closing { // whatever was there before is there at the end
		of(k)
	}
	for _, m := range moves {
		d, c := of(kindOf{m.debit, m.currency}), of(kindOf{m.credit, m.currency})
		d.debits.Add(d.debits, m.amount)
		c.credits.Add(c.credits, m.amount)
	}
	out := make([]KindPeriod, 0, len(rows))
	for k, r := range rows {
		out = append(out, KindPeriod{Kind: string(k.kind), Currency: k.currency, Opening: decimal(opening[k]),
			Debits: decimal(r.debits), Credits: decimal(r.credits), Closing: decimal(closing[k])})
	}
	slices.SortFunc(out, func(a, b KindPeriod) int {
		return strings.Compare(a.Currency+" "+a.Kind, b.Currency+" "+b.Kind)
	})
	return out
}

// turnover returns what was sold, by kind of entry: what moved from those who pay for time and storage to those who
// earn it, less what moved back.
func turnover(moves []flow) []KindOfSales {
	type key struct{ entry, currency string }
	type line struct{ by [5]*big.Int } // renters, bonds, relief, hosts, fees
	side := map[Kind]int{KindRenterWallet: 0, KindRenterHold: 0, KindBondHold: 1, KindStandbyRelief: 2, KindHostPending: 3,
		KindPlatformFee: 4}
	lines := map[key]line{}
	for _, m := range moves {
		from, ok1 := side[m.debit]
		to, ok2 := side[m.credit]
		if !ok1 || !ok2 || (from < 3) == (to < 3) { // both sides pay, or both earn
			continue
		}
		k := key{m.entry, m.currency}
		l, ok := lines[k]
		if !ok {
			for i := range l.by {
				l.by[i] = new(big.Int)
			}
			lines[k] = l
		}
		amount := m.amount
		if from >= 3 {
			amount = new(big.Int).Neg(amount)
		}
		l.by[from].Add(l.by[from], amount)
		l.by[to].Add(l.by[to], amount)
	}
	out := make([]KindOfSales, 0, len(lines))
	for k, l := range lines {
		out = append(out, KindOfSales{Kind: k.entry, Currency: k.currency, Renters: decimal(l.by[0]),
			Bonds: decimal(l.by[1]), Relief: decimal(l.by[2]), Hosts: decimal(l.by[3]), Fees: decimal(l.by[4])})
	}
	slices.SortFunc(out, func(a, b KindOfSales) int {
		return strings.Compare(a.Currency+" "+a.Kind, b.Currency+" "+b.Kind)
	})
	return out
}

// Place is an entry's place in the chain; the zero place is before all of them.
type Place struct {
	Batch    int64
	Position int32
}

// String returns the place as a cursor of lists.
func (p Place) String() string { return fmt.Sprintf("%d.%d", p.Batch, p.Position) }

// ParsePlace reads a cursor; "" is the zero place. Fault: Invalid.
func ParsePlace(s string) (p Place, err error) {
	if s == "" {
		return Place{Position: -1}, nil
	}
	if _, err := fmt.Sscanf(s, "%d.%d", &p.Batch, &p.Position); err != nil || p.String() != s {
		return p, fault.InvalidField("query.after", "is not a cursor of this list")
	}
	return p, nil
}

// Placed is an entry of the journal with its place.
type Placed struct {
	JournalEntry
	Place Place
}

// Journal returns the entries of some days in the order of the chain, those behind a place, at most limit. Kind "" is
// all kinds. A page costs the same however long the journal is.
func Journal(ctx context.Context, q *dbq.Queries, d Days, kind string, behind Place, limit int) ([]Placed, error) {
	after, through, err := d.batches(ctx, q)
	if err != nil {
		return nil, err
	}
	if behind.Batch <= after {
		behind = Place{Batch: after + 1, Position: -1}
	}
	rows, err := q.LedgerJournal(ctx, dbq.LedgerJournalParams{AfterBatch: behind.Batch, AfterPosition: behind.Position,
		Through: through, Kind: kind, MaxRows: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	var out []Placed
	for _, r := range rows {
		at := Place{r.Batch, r.Position}
		if len(out) == 0 || out[len(out)-1].Place != at {
			out = append(out, Placed{JournalEntry{Day: r.MadeAt.UTC().Format(time.DateOnly), LedgerEntry: client.LedgerEntry{
				ID: r.ID.String(), Kind: r.Kind, Key: r.Key, Memo: r.Memo, Ref: r.Ref,
				At: r.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z"), Transfers: []client.LedgerTransfer{},
			}}, at})
		}
		e := &out[len(out)-1]
		e.Transfers = append(e.Transfers, client.LedgerTransfer{Debit: r.DebitKind, DebitOrg: r.DebitOrg.String(),
			Credit: r.CreditKind, CreditOrg: r.CreditOrg.String(), Amount: r.Amount, Currency: r.Currency})
	}
	return out, nil
}

// OrgsAt returns what organisations had in a currency at the end of a day, in the order of their ids, those behind one
// (zero: from the first), at most limit.
func OrgsAt(ctx context.Context, q *dbq.Queries, currency string, day time.Time, behind id.Org,
	limit int) ([]OrgMoney, error) {
	_, through, err := Days{day, day}.batches(ctx, q)
	if err != nil {
		return nil, err
	}
	line, err := lineAt(ctx, q, through)
	if err != nil {
		return nil, err
	}
	rows, err := q.LedgerOrgsAt(ctx, dbq.LedgerOrgsAtParams{Currency: currency, Line: line, AfterID: raw(behind),
		MaxRows: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("read balances of organisations: %w", err)
	}
	out := make([]OrgMoney, len(rows))
	for i, r := range rows {
		has, err := amounts(r.After)
		if err != nil {
			return nil, err
		}
		out[i] = orgMoney(r.ID, r.Name, has)
	}
	return out, nil
}

// lineAt returns the last line of an organisation that is of a batch or of an earlier one.
func lineAt(ctx context.Context, q *dbq.Queries, batch int64) (int64, error) {
	sealed, err := q.LedgerSealedThrough(ctx, batch)
	if err != nil {
		return 0, fmt.Errorf("read the last sealed day: %w", err)
	}
	if sealed.Batch == batch {
		return sealed.Line, nil
	}
	n, err := q.LastLedgerLineOf(ctx, sealed.Batch, batch)
	if err != nil {
		return 0, fmt.Errorf("read the last line of batch %d: %w", batch, err)
	}
	return n, nil
}

// orgMoney adds up what an organisation has by what it means to the platform.
func orgMoney(org id.Org, name string, has map[Kind]money.Nano) OrgMoney {
	x := OrgMoney{Org: org, Name: name, Accounts: map[string]money.Nano{}}
	for k, n := range has {
		if n == 0 {
			continue
		}
		x.Accounts[string(k)] = n
		switch {
		case n < 0:
			x.Receivable -= n
		case k == KindRenterWallet, k == KindRenterHold, k == KindDisputeHold, k == KindReceivable:
			x.Deferred += n
		default:
			x.Payable += n
		}
	}
	return x
}

// integer reads a whole number that PostgreSQL wrote.
func integer(s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return new(big.Int)
	}
	return n
}

// decimal formats nano-units of any size.
func decimal(n *big.Int) string {
	if n == nil {
		n = new(big.Int)
	}
	whole, rest := new(big.Int).QuoRem(new(big.Int).Abs(n), big.NewInt(int64(money.Unit)), new(big.Int))
	sign := ""
	if n.Sign() < 0 {
		sign = "-"
	}
	return fmt.Sprintf("%s%s.%09d", sign, whole, rest)
}
