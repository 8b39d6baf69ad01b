package billing

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/clusters"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const (
	statementClusters = 20 // clusters on the page's statement
	// statementSegments is the largest number of segments of a cluster that the page itemises: a day of one node has 288.
	statementSegments   = 2000
	transactionsPerPage = 50
)

func (s *Pages) billing(v *page.Visit) error {
	forms := untouched()
	forms.tab = v.R.FormValue("tab")
	if v.R.FormValue("added") != "" {
		forms.tab, forms.topUp.Done = "payments", "Credit added."
	}
	if v.R.FormValue("given") != "" {
		forms.tab, forms.refund.Done = "payments", "The refund is on its way to the cards that paid."
	}
	if v.R.FormValue("redeemed") != "" {
		forms.tab, forms.promo.Done = "payments", "The credit is in your wallet."
	}
	if v.R.FormValue("returned") != "" {
		forms.tab = "payments"
		if err := s.Payments.TopUps.RefreshOrg(v.R.Context(), v.Who.Org); err != nil {
			return err
		}
	}
	return s.showBilling(v, forms)
}

// billingForms are the forms of the billing page, as typed when the page is shown again.
type billingForms struct {
	topUp  TopUpForm
	auto   *AutoForm // nil: show the stored setting
	budget BudgetForm
	refund RefundForm
	promo  PromoForm
	tab    string // "" = the first one
}

// untouched returns the forms as a visitor first sees them.
func untouched() billingForms { return billingForms{topUp: TopUpForm{Amount: "100.00"}} }

// showBilling renders the page with what was typed into its forms.
func (s *Pages) showBilling(v *page.Visit, forms billingForms) error {
	ctx := v.R.Context()
	b, err := s.Statements.OrgBalance(ctx, v.Who.Org)
	if err != nil {
		return err
	}
	out := Billing{
		Tab: forms.tab, Org: v.Who.OrgName, Available: b.Available, Held: b.Held, Accrued: b.Accrued, Burn: b.BurnPerHour,
		Runway: page.Runway(b), RunwayNote: "then clusters shut down cleanly", Currency: b.Currency, TopUp: forms.topUp,
	}
	if b.RunwaySeconds == nil {
		out.RunwayNote = "nothing is being billed"
	}
	if b.StorageOwedSince != nil {
		out.StorageOwed = fmt.Sprintf("You owe %s %s for what your volumes stored since %s. Add at least that much: it is "+
			"charged within seconds. After a day nothing new can be rented; after 30 days volumes are hidden, and 7 days "+
			"later erased.", b.StorageOwed.Plain(), b.Currency, b.StorageOwedSince.Format("2 January 2006"))
	}
	if out.TopUp.TaxNote, err = s.taxNote(ctx, v.Who.Org); err != nil {
		return err
	}
	if out.Budgets, err = s.budgets(v, forms.budget); err != nil {
		return err
	}
	if out.Statement, err = s.statement(ctx, v.Who); err != nil {
		return err
	}
	out.Month = out.Statement.Total
	if out.Paying, err = s.paying(ctx, v.Who.Org); err != nil {
		return err
	}
	if forms.auto != nil {
		out.Paying.Auto = *forms.auto
	}
	if out.Postpaid, err = s.onCredit(ctx, v.Who.Org); err != nil {
		return err
	}
	if err := s.givingBack(v, forms, &out); err != nil {
		return err
	}
	if err := s.wallet(v, &out); err != nil {
		return err
	}
	if out.Tab == "" || out.Tab == billingTabs[0].key {
		out.Tab = billingTabs[0].key
		if out.ByDay, err = s.costByDay(v); err != nil {
			return err
		}
	}
	return s.Render(v, BillingPage(v.Page("Billing", "billing"), out))
}

// wallet adds the wallet's ledger transactions, newest first.
func (s *Pages) wallet(v *page.Visit, out *Billing) error {
	var before id.LedgerTx
	if a := v.R.FormValue("after"); a != "" {
		var err error
		if before, err = id.Parse[id.LedgerTx](a); err != nil {
			return fault.New(fault.NotFound, "page not found")
		}
	}
	list, err := s.Statements.Transactions(v.R.Context(), v.Who.Org, before, transactionsPerPage)
	if err != nil {
		return err
	}
	for _, t := range list {
		x := Transaction{
			Time:   view.Clock(t.At, s.Now()),
			Kind:   transactionName(t.Kind),
			Memo:   t.Memo,
			Ref:    t.Ref,
			Amount: t.Available,
		}
		if t.Available == 0 {
			x.Amount, x.OfHold = t.Amount, t.Held != 0
		}
		out.Transactions = append(out.Transactions, x)
	}
	if len(list) == transactionsPerPage {
		out.Next = "/billing?" + url.Values{"tab": {"wallet"}, "after": {list[len(list)-1].ID.String()}}.Encode()
	}
	return nil
}

func transactionName(kind string) string {
	switch kind {
	case "topup":
		return "Credit added"
	case "authorise":
		return "Held for a cluster"
	case "hold_release":
		return "Returned from a hold"
	case "usage":
		return "Usage"
	case "postpaid":
		return "Billed, to be invoiced"
	case "invoice_paid":
		return "Invoice paid"
	case "tax_invoice":
		return "Tax on an invoice"
	case "tax_invoice_void":
		return "Tax of a withdrawn invoice"
	case "invoice_writeoff":
		return "Invoice given up by us"
	case "invoice_writeoff_void":
		return "A withdrawn invoice is owed again"
	case "dispute_writeoff":
		return "Given up by us after a dispute"
	case "dispute_recovered":
		return "Came after it was given up"
	case "dispute_paid":
		return "Paid by bank after a dispute"
	case "postpaid_rest":
		return "Too little to be collected"
	case "payout_mature":
		return "Earnings are payable"
	case "payout_refuse":
		return "Earnings refused by a review"
	case "payout":
		return "Paid out"
	case "payout_failed":
		return "A payout came back"
	case "payout_reversed":
		return "A payout was taken back"
	case "service_credit":
		return "Credit for a host's fault"
	case "earning":
		return "Earned by a host"
	case "bond_deposit":
		return "Deposited into the bond"
	case "bond_retain":
		return "Retained for the bond"
	case "bond_withdraw":
		return "Withdrawn from the bond"
	case "bond_reserve":
		return "Bond reserved for a lease"
	case "bond_release":
		return "Bond no longer reserved"
	case "standby":
		return "Standby, from a failing host's bond"
	case "relief":
		return "Standby, from the platform"
	}
	return strings.ToUpper(kind[:min(1, len(kind))]) + strings.ReplaceAll(kind[min(1, len(kind)):], "_", " ")
}

// statement returns one line per rank of the organisation's last clusters, each the sum of its signed segments.
func (s *Pages) statement(ctx context.Context, who account.Principal) (Statement, error) {
	st := Statement{Period: fmt.Sprintf("your last %d clusters", statementClusters)}
	list, err := s.Clusters.Views.List(ctx, who.Org, cluster.ListRequest{Limit: statementClusters})
	if err != nil {
		return st, err
	}
	var billed money.Nano
	hosts := map[id.Host]bool{}
	for _, c := range list {
		u, short, err := s.Statements.ShortUsage(ctx, c.ID, statementSegments)
		if err != nil {
			return st, err
		}
		if !short {
			st.Groups = append(st.Groups, StatementGroup{Name: c.Name, Href: "/clusters/" + c.ID.String(), Amount: c.CostSoFar,
				Summary: clusters.Summary(c) + "; its page itemises it"})
			st.Total += c.CostSoFar
			billed += c.CostSoFar
			continue
		}
		if len(u.Segments) == 0 {
			continue
		}
		g := StatementGroup{Name: c.Name, Summary: clusters.Summary(c), Href: "/clusters/" + c.ID.String(), Amount: u.Cost}
		g.Lines = statementLines(u)
		for _, l := range g.Lines {
			st.Total += l.Amount
		}
		for _, seg := range u.Segments {
			hosts[seg.HostID] = true
		}
		st.Lines += len(g.Lines)
		st.Segments += len(u.Segments)
		billed += u.Cost
		st.Groups = append(st.Groups, g)
	}
	st.Hosts = len(hosts)
	st.Difference = st.Total - billed
	return st, nil
}

// statementLines sums a cluster's segments by rank and lease.
func statementLines(u statement.Usage) []StatementLine {
	type key struct {
		rank  int
		lease id.Lease
		rate  money.Micro
	}
	byKey := map[key]*StatementLine{}
	from, to := map[key]time.Time{}, map[key]time.Time{}
	var order []key
	for _, seg := range u.Segments {
		k := key{seg.Rank, seg.Lease, seg.PricePerHour}
		l := byKey[k]
		if l == nil {
			l = &StatementLine{Rank: seg.Rank, Host: seg.HostName, GPUs: seg.GPUs, Rate: seg.PricePerHour}
			byKey[k], from[k], to[k] = l, seg.From, seg.To
			order = append(order, k)
		}
		l.Billed += time.Duration(seg.Seconds) * time.Millisecond
		l.Amount += seg.Cost
		if seg.From.Before(from[k]) {
			from[k] = seg.From
		}
		if seg.To.After(to[k]) {
			to[k] = seg.To
		}
	}
	slices.SortStableFunc(order, func(a, b key) int { return cmp.Compare(a.rank, b.rank) })
	lines := make([]StatementLine, 0, len(order))
	for _, k := range order {
		l := byKey[k]
		l.Window = from[k].UTC().Format("15:04:05.0") + " – " + to[k].UTC().Format("15:04:05.0")
		lines = append(lines, *l)
	}
	return lines
}

// pay makes the payment that the form requests. If tax is added, the payer has to confirm the total first: pay then
// sets form.Confirm and pays nothing.
func (s *Pages) pay(v *page.Visit, r *payment.TopUpRequest, form *TopUpForm) (t payment.TopUp, err error) {
	ctx := v.R.Context()
	if seen := v.R.FormValue("total"); seen != "" && v.R.FormValue("preset") == "" {
		if r.Total, err = money.ParseNano(seen); err != nil {
			return t, fault.InvalidField("amount", "%s", err)
		}
		t, _, err = s.Payments.TopUps.Create(ctx, v.Who, *r, v.Once("amount", "total", "card"))
		if !fault.Is(err, fault.Conflict) {
			return t, err
		}
		form.Error = sentence(fault.From(err).Message)
	}
	if form.Confirm, err = s.confirm(ctx, v.Who.Org, r.Amount, r.Card); err != nil || form.Confirm != nil {
		return t, err
	}
	t, _, err = s.Payments.TopUps.Create(ctx, v.Who, *r, idem.Request{})
	return t, err
}

// sentence turns a fault's message into a sentence.
func sentence(m string) string { return strings.ToUpper(m[:1]) + m[1:] + "." }

// topUp adds credit: at once with the saved card, otherwise through Stripe's page.
func (s *Pages) topUp(v *page.Visit) error {
	form := TopUpForm{Amount: strings.TrimSpace(v.R.FormValue("amount"))}
	if p := v.R.FormValue("preset"); p != "" {
		form.Amount = p
	}
	amount, err := money.ParseNano(form.Amount)
	if err != nil {
		form.Error = err.Error()
		v.Status = fault.Invalid.HTTPStatus()
		return s.showBilling(v, billingForms{topUp: form})
	}
	r := payment.TopUpRequest{Amount: amount}
	if c := v.R.FormValue("card"); c != "" {
		if r.Card, err = id.Parse[id.Card](c); err != nil {
			return fault.New(fault.NotFound, "card not found")
		}
	}
	t, err := s.pay(v, &r, &form)
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Error = page.First(errs, "amount", "")
			return s.showBilling(v, billingForms{topUp: form})
		})
	}
	if form.Confirm != nil {
		return s.showBilling(v, billingForms{topUp: form})
	}
	switch {
	case t.State == payment.Failed:
		form.Error = t.Failure
		return s.showBilling(v, billingForms{topUp: form})
	case t.CheckoutURL != "":
		return page.Back(v, t.CheckoutURL)
	case t.ActionURL != "":
		return page.Back(v, t.ActionURL)
	case t.State == payment.Pending:
		form.Done = "The payment is being processed; the credit appears when it succeeds."
		return s.showBilling(v, billingForms{topUp: form})
	}
	return page.Back(v, "/billing?added=1")
}

// walletBar renders only the wallet; open pages poll it.
func (s *Pages) walletBar(v *page.Visit) error {
	return s.Render(v, view.WalletBar(s.WalletOf(v.R.Context(), v.Who)))
}
