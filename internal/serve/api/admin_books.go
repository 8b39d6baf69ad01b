package api

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// booksAPI answers the routes of the platform's books: reports, journal, proposals.
type booksAPI struct {
	statements *statement.Statements
	payments   *payment.Payments
}

// BookDays is the query of a period of the ledger. (Exported because huma reads only exported fields.)
type BookDays struct {
	From string `query:"from" required:"true" maxLength:"10" doc:"the first day, in UTC" example:"2026-11-01"`
	To   string `query:"to" required:"true" maxLength:"10" doc:"the last day, in UTC" example:"2026-11-30"`
}

func (a booksAPI) ledgerReport(ctx context.Context, p account.Principal, in *BookDays) (client.LedgerReport, error) {
	days, err := ledger.ParseDays(in.From, in.To)
	if err != nil {
		return client.LedgerReport{}, err
	}
	return a.statements.LedgerReport(ctx, p, days)
}

// daysParams are the query of a table of a period.
func daysParams(more ...*huma.Param) []*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	return append([]*huma.Param{
		{Name: "from", In: "query", Required: true, Description: "the first day, in UTC", Schema: text,
			Example: "2026-11-01"},
		{Name: "to", In: "query", Required: true, Description: "the last day, in UTC", Schema: text, Example: "2026-11-30"},
	}, more...)
}

func kindParam() *huma.Param {
	return &huma.Param{Name: "kind", In: "query", Description: "entries of this kind only, such as payout_paid",
		Schema: &huma.Schema{Type: huma.TypeString}}
}

func dayParam() *huma.Param {
	return &huma.Param{Name: "at", In: "query", Description: "the day, in UTC, such as 2026-11-30; left out: today",
		Schema: &huma.Schema{Type: huma.TypeString}}
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
func (a booksAPI) ledgerCSV(name string, table func(io.Writer, ledger.Report) error) streamer {
	return func(w http.ResponseWriter, r *http.Request, p account.Principal) error {
		q := r.URL.Query()
		days, err := ledger.ParseDays(q.Get("from"), q.Get("to"))
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

func (a booksAPI) journal(ctx context.Context, p account.Principal, in *struct {
	Page
	BookDays
	Kind string `query:"kind" maxLength:"100" doc:"entries of this kind only, such as payout_paid"`
}) (list[client.JournalEntry], error) {
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

func (a booksAPI) journalCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	q := r.URL.Query()
	days, err := ledger.ParseDays(q.Get("from"), q.Get("to"))
	if err != nil {
		return err
	}
	return sendCSV(w, "journal-"+q.Get("from")+"-"+q.Get("to"), func(out io.Writer) error {
		return a.statements.JournalCSV(r.Context(), p, out, days, q.Get("kind"))
	})
}

func (a booksAPI) orgMoney(ctx context.Context, p account.Principal, in *struct {
	Page
	At string `query:"at" maxLength:"10" doc:"the day, in UTC, such as 2026-11-30; left out: today"`
}) (list[client.OrgMoney], error) {
	day, err := a.statements.LedgerDay(ctx, in.At)
	if err != nil {
		return list[client.OrgMoney]{}, err
	}
	behind, err := cursor[id.Org](in.Page)
	if err != nil {
		return list[client.OrgMoney]{}, err
	}
	rows, err := a.statements.OrgMoney(ctx, p, day, behind, in.Limit+1)
	return cut(rows, in.Limit, same[client.OrgMoney], func(o client.OrgMoney) string { return o.Org.String() }), err
}

func (a booksAPI) orgMoneyCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	day, err := a.statements.LedgerDay(r.Context(), r.URL.Query().Get("at"))
	if err != nil {
		return err
	}
	return sendCSV(w, "organisations-"+day.Format("2006-01-02"), func(out io.Writer) error {
		return a.statements.OrgMoneyCSV(r.Context(), p, out, day)
	})
}

func (a booksAPI) listProposals(ctx context.Context, p account.Principal, in *struct {
	Page
	Open bool `query:"open" doc:"only those that wait for a decision"`
}) (list[client.LedgerProposal], error) {
	before, err := cursor[id.LedgerProposal](in.Page)
	if err != nil {
		return list[client.LedgerProposal]{}, err
	}
	rows, err := a.statements.Proposals(ctx, p, in.Open, before, in.Limit+1)
	return cut(rows, in.Limit, same[client.LedgerProposal],
		func(x client.LedgerProposal) string { return x.ID.String() }), err
}

type proposeInput struct {
	Keyed
	Body client.NewLedgerProposal
}

func (a booksAPI) proposeEntry(ctx context.Context, p account.Principal, in *proposeInput,
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return client.LedgerProposal{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	return a.payments.ProposeEntry(ctx, p, ledger.Draft{
		Debit:  ledger.Kind(in.Body.Debit),
		Credit: ledger.Kind(in.Body.Credit),
		Amount: amount,
		Reason: in.Body.Reason,
	}, once)
}

type decideEntryInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit log keeps it" example:"checked with the bank's statement"`
	}
}

func (a booksAPI) approveEntry(ctx context.Context, p account.Principal, in *decideEntryInput,
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	return a.decideEntry(ctx, p, in, true, once)
}

func (a booksAPI) refuseEntry(ctx context.Context, p account.Principal, in *decideEntryInput,
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	return a.decideEntry(ctx, p, in, false, once)
}

func (a booksAPI) decideEntry(ctx context.Context, p account.Principal, in *decideEntryInput, approve bool,
	once idem.Request) (client.LedgerProposal, idem.Outcome, error) {
	x, err := pathID[id.LedgerProposal](in.ID, "proposal")
	if err != nil {
		return client.LedgerProposal{}, idem.Outcome{}, err
	}
	return a.payments.DecideEntry(ctx, p, x, approve, in.Body.Reason, once)
}
