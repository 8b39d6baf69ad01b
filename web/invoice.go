package web

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) invoicePage(v *visit) error {
	i, err := s.Statements.InvoiceOf(v.r.Context(), v.who.Org, v.who.OrgName, chi.URLParam(v.r, "month"))
	if err != nil {
		return err
	}
	return s.render(v, view.InvoicePage(v.page("Monthly statement "+i.Number, "billing"), i))
}

func (s *Web) receiptPage(v *visit) error {
	topup, err := id.Parse[id.TopUp](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "there is no such payment")
	}
	r, err := s.Payments.Receipt(v.r.Context(), v.who.Org, topup)
	if err != nil {
		return err
	}
	return s.render(v, view.ReceiptPage(v.page("Receipt "+r.Number, "billing"), r))
}
