package billing

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

func (s *Pages) invoicePage(v *page.Visit) error {
	i, err := s.Statements.InvoiceOf(v.R.Context(), v.Who.Org, v.Who.OrgName, chi.URLParam(v.R, "month"))
	if err != nil {
		return err
	}
	return s.Render(v, InvoicePage(v.Page("Monthly statement "+i.Number, "billing"), i))
}

func (s *Pages) receiptPage(v *page.Visit) error {
	topup, err := id.Parse[id.TopUp](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "payment not found")
	}
	r, err := s.Payments.Receipts.Get(v.R.Context(), v.Who.Org, topup)
	if err != nil {
		return err
	}
	return s.Render(v, ReceiptPage(v.Page("Receipt "+r.Number, "billing"), r))
}
