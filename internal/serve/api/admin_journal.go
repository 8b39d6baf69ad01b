package api

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

func (a ledgerAPI) ledgerReport(ctx context.Context, p account.Principal,
	in *client.LedgerDays) (client.LedgerReport, error) {
	days, err := ledger.ParseDays(in.From, in.To)
	if err != nil {
		return client.LedgerReport{}, err
	}
	return a.statements.LedgerReport(ctx, p, days)
}

// sendCSV writes a table as a file. An error that comes after the first part was sent breaks the connection off, so
// that the caller does not take a part for the whole.
func sendCSV(w http.ResponseWriter, name string, write func(io.Writer) error) error {
	sent := &csvFile{w: w, name: name}
	out := bufio.NewWriterSize(sent, 1<<16)
	err := write(out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil && sent.begun {
		panic(http.ErrAbortHandler)
	}
	return err
}

// csvFile sets the headers of a file when its first part is sent.
type csvFile struct {
	w     http.ResponseWriter
	name  string
	begun bool
}

func (f *csvFile) Write(b []byte) (int, error) {
	if !f.begun {
		f.begun = true
		f.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		f.w.Header().Set("Content-Disposition", `attachment; filename="`+f.name+`.csv"`)
	}
	return f.w.Write(b)
}

// ledgerCSV is a table of the report of a period.
func (a ledgerAPI) ledgerCSV(name string, table func(io.Writer, ledger.Report) error) func(http.ResponseWriter,
	*http.Request, account.Principal, *client.LedgerDays) error {
	return func(w http.ResponseWriter, r *http.Request, p account.Principal, in *client.LedgerDays) error {
		days, err := ledger.ParseDays(in.From, in.To)
		if err != nil {
			return err
		}
		report, err := a.statements.LedgerReport(r.Context(), p, days)
		if err != nil {
			return err
		}
		return sendCSV(w, name+"-"+report.From+"-"+report.To, func(out io.Writer) error { return table(out, report) })
	}
}

func (a ledgerAPI) journal(ctx context.Context, p account.Principal,
	in *client.JournalQuery) (list[client.JournalEntry], error) {
	days, err := ledger.ParseDays(in.From, in.To)
	if err != nil {
		return list[client.JournalEntry]{}, err
	}
	behind, err := ledger.ParsePlace(in.After)
	if err != nil {
		return list[client.JournalEntry]{}, err
	}
	rows, err := a.statements.Journal(ctx, p, days, in.Kind, behind, in.Limit+1)
	view := func(e ledger.Placed) client.JournalEntry { return e.JournalEntry }
	return cut(rows, in.Limit, view, func(e ledger.Placed) string { return e.Place.String() }), err
}

func (a ledgerAPI) journalCSV(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *client.JournalFilter) error {
	days, err := ledger.ParseDays(in.From, in.To)
	if err != nil {
		return err
	}
	return sendCSV(w, "journal-"+in.From+"-"+in.To, func(out io.Writer) error {
		return a.statements.JournalCSV(r.Context(), p, out, days, in.Kind)
	})
}

func (a ledgerAPI) orgMoney(ctx context.Context, p account.Principal,
	in *client.OrgMoneyQuery) (list[client.OrgMoney], error) {
	day, err := a.statements.LedgerDay(ctx, in.At)
	if err != nil {
		return list[client.OrgMoney]{}, err
	}
	behind, err := cursor[id.Org](in.PageOf)
	if err != nil {
		return list[client.OrgMoney]{}, err
	}
	rows, err := a.statements.OrgMoney(ctx, p, day, behind, in.Limit+1)
	return cut(rows, in.Limit, same[client.OrgMoney], func(o client.OrgMoney) string { return o.Org.String() }), err
}

func (a ledgerAPI) orgMoneyCSV(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *client.LedgerDay) error {
	day, err := a.statements.LedgerDay(r.Context(), in.At)
	if err != nil {
		return err
	}
	return sendCSV(w, "organisations-"+day.Format("2006-01-02"), func(out io.Writer) error {
		return a.statements.OrgMoneyCSV(r.Context(), p, out, day)
	})
}

func (a ledgerAPI) listProposals(ctx context.Context, p account.Principal,
	in *client.ProposalsQuery) (list[client.LedgerProposal], error) {
	before, err := cursor[id.LedgerProposal](in.PageOf)
	if err != nil {
		return list[client.LedgerProposal]{}, err
	}
	rows, err := a.statements.Proposals(ctx, p, in.Open, before, in.Limit+1)
	return cut(rows, in.Limit, same[client.LedgerProposal],
		func(x client.LedgerProposal) string { return x.ID.String() }), err
}

func (a ledgerAPI) proposeEntry(ctx context.Context, p account.Principal, in *create[client.NewLedgerProposal],
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return client.LedgerProposal{}, idem.Outcome{}, err
	}
	return a.payments.Corrections.Propose(ctx, p, ledger.Draft{
		Debit:  ledger.Kind(in.Body.Debit),
		Credit: ledger.Kind(in.Body.Credit),
		Amount: amount,
		Reason: in.Body.Reason,
	}, once)
}

func (a ledgerAPI) approveEntry(ctx context.Context, p account.Principal,
	in *act[id.LedgerProposal, client.EntryDecision],
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	return a.decideEntry(ctx, p, in, true, once)
}

func (a ledgerAPI) refuseEntry(ctx context.Context, p account.Principal,
	in *act[id.LedgerProposal, client.EntryDecision],
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	return a.decideEntry(ctx, p, in, false, once)
}

func (a ledgerAPI) decideEntry(ctx context.Context, p account.Principal,
	in *act[id.LedgerProposal, client.EntryDecision], approve bool,
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	return a.payments.Corrections.Decide(ctx, p, in.ID, approve, in.Body.Reason, once)
}
