package ledger

import (
	"context"
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// csvRows is how much of a table is read at a time.
const csvRows = 1000

// BalancesCSV writes the balances of a report.
func BalancesCSV(w io.Writer, r Report) error {
	rows := [][]string{{"from", "to", "account", "currency", "opening", "debits", "credits", "closing"}}
	for _, a := range r.Accounts {
		rows = append(rows, []string{r.From, r.To, a.Kind, a.Currency, a.Opening, a.Debits, a.Credits, a.Closing})
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// FlowsCSV writes what moved in a report's months.
func FlowsCSV(w io.Writer, r Report) error {
	rows := [][]string{{"month", "kind", "debit", "credit", "transfers", "amount", "currency"}}
	for _, f := range r.Flows {
		rows = append(rows, []string{f.Month, f.Kind, f.Debit, f.Credit, strconv.FormatInt(f.Transfers, 10), f.Amount,
			f.Currency})
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// TurnoverCSV writes what was sold in a report's period.
func TurnoverCSV(w io.Writer, r Report) error {
	rows := [][]string{{"from", "to", "kind", "renters", "bonds", "relief", "hosts", "fees", "currency"}}
	for _, l := range r.Turnover {
		rows = append(rows, []string{r.From, r.To, l.Kind, l.Renters, l.Bonds, l.Relief, l.Hosts, l.Fees, l.Currency})
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// JournalCSV writes the entries of some days, a line for each transfer, as it reads them: it needs no more memory for a
// year than for a day.
func JournalCSV(ctx context.Context, w io.Writer, q *dbq.Queries, d Days, kind string) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", "booked_at", "entry", "kind", "debit", "debit_org", "credit", "credit_org", "amount",
		"currency", "ref", "key", "memo"})
	for at := (Place{Position: -1}); ; {
		page, err := Journal(ctx, q, d, kind, at, csvRows)
		if err != nil {
			return err
		}
		for _, e := range page {
			at = e.Place
			for _, t := range e.Transfers {
				_ = out.Write([]string{e.Day, e.At, e.ID, e.Kind, t.Debit, t.DebitOrg, t.Credit, t.CreditOrg, t.Amount.String(),
					t.Currency, plain(e.Ref), plain(e.Key), plain(e.Memo)})
			}
		}
		out.Flush()
		if err := out.Error(); err != nil || len(page) < csvRows {
			return err
		}
	}
}

// orgKinds are the kinds of accounts that organisations have, as the columns of a table.
var orgKinds = []Kind{KindRenterWallet, KindRenterHold, KindDisputeHold, KindReceivable, KindHostPending,
	KindHostPayable, KindHostBond, KindBondHold}

// OrgsCSV writes what every organisation had at the end of a day.
func OrgsCSV(ctx context.Context, w io.Writer, q *dbq.Queries, currency string, day time.Time) error {
	out := csv.NewWriter(w)
	head := []string{"at", "org", "name", "currency", "deferred", "receivable", "payable"}
	for _, k := range orgKinds {
		head = append(head, string(k))
	}
	_ = out.Write(head)
	for behind := (id.Org{}); ; {
		page, err := OrgsAt(ctx, q, currency, day, behind, csvRows)
		if err != nil {
			return err
		}
		for _, o := range page {
			behind = o.Org
			row := []string{day.Format(time.DateOnly), o.Org.String(), plain(o.Name), currency, o.Deferred.String(),
				o.Receivable.String(), o.Payable.String()}
			for _, k := range orgKinds {
				row = append(row, o.Accounts[string(k)].String())
			}
			_ = out.Write(row)
		}
		out.Flush()
		if err := out.Error(); err != nil || len(page) < csvRows {
			return err
		}
	}
}

// plain keeps a spreadsheet from reading a text as a formula.
func plain(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
