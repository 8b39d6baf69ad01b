package admin

import (
	"strings"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
)

// proposalPages are entries that one of the staff proposes and another decides.
type proposalPages struct {
	*page.Site
}

// proposals shows the entries that wait for a second admin, and those that were decided.
func (s *proposalPages) proposals(v *page.Visit) error {
	return s.showProposals(v, ProposalForm{}, ActForm{})
}

func (s *proposalPages) showProposals(v *page.Visit, form ProposalForm, decision ActForm) error {
	form.Once, decision.Once = page.NewOnce(), page.NewOnce()
	out := Proposals{Form: form, Decision: decision, Own: v.Who.Email, Currency: s.Currency,
		Done: page.Done(v, map[string]string{
			"proposed": "Proposed. Another admin has to approve it.",
			"approve":  "Booked.",
			"refuse":   "Refused.",
		})}
	before, err := page.After[id.LedgerProposal](v)
	if err != nil {
		return err
	}
	out.Rows, err = s.Statements.Proposals(v.R.Context(), v.Who, false, before, page.AdminRows+1)
	if err != nil {
		return err
	}
	if len(out.Rows) > page.AdminRows {
		out.Rows = out.Rows[:page.AdminRows]
		out.Next = page.Older(v, out.Rows[page.AdminRows-1].ID.String())
	}
	return s.Render(v, ProposalsPage(v.Page("Proposed entries", "admin"), out))
}

// propose proposes an entry between accounts of the platform.
func (s *proposalPages) propose(v *page.Visit) error {
	f := func(name string) string { return strings.TrimSpace(v.R.FormValue(name)) }
	form := ProposalForm{Debit: f("debit"), Credit: f("credit"), Amount: f("amount"), Reason: f("reason")}
	amount, err := money.ParseNano(form.Amount)
	if err != nil {
		err = fault.InvalidField("amount", "%s", err)
	} else {
		_, _, err = s.Payments.Corrections.Propose(v.R.Context(), v.Who, ledger.Draft{Debit: ledger.Kind(form.Debit),
			Credit: ledger.Kind(form.Credit), Amount: amount, Reason: form.Reason},
			v.Once("debit", "credit", "amount", "reason"))
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showProposals(v, form, ActForm{})
		})
	}
	return page.Back(v, "/admin/books/proposals?done=proposed")
}

// decideProposal books or refuses a proposed entry.
func (s *proposalPages) decideProposal(v *page.Visit) error {
	f := func(name string) string { return strings.TrimSpace(v.R.FormValue(name)) }
	form := ActForm{Act: "decide", Target: f("id"), Reason: f("reason")}
	act := f("act")
	p, err := id.Parse[id.LedgerProposal](form.Target)
	if err != nil || act != "approve" && act != "refuse" {
		return fault.New(fault.NotFound, "page not found")
	}
	_, _, err = s.Payments.Corrections.Decide(v.R.Context(), v.Who, p, act == "approve", form.Reason,
		v.Once("id", "act", "reason"))
	if fault.Is(err, fault.Forbidden) { // of the proposal, not of the page
		err = fault.New(fault.Conflict, "%s", fault.From(err).Message)
	}
	if err = inForm(err); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showProposals(v, ProposalForm{}, form)
		})
	}
	return page.Back(v, "/admin/books/proposals?done="+act)
}
