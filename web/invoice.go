package web

import (
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
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

func (s *Web) setLegal(v *visit) error {
	f := view.LegalForm{
		Name: v.r.FormValue("legal_name"), Address: strings.ReplaceAll(v.r.FormValue("legal_address"), "\r\n", "\n"),
		Country: v.r.FormValue("legal_country"), VATID: v.r.FormValue("legal_vat"),
	}
	_, err := s.Accounts.SetLegal(v.r.Context(), v.who, account.Legal{
		Name:    f.Name,
		Address: strings.Split(f.Address, "\n"),
		Country: f.Country,
		VATID:   f.VATID,
	})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.showAccount(v, view.Account{Legal: f})
		})
	}
	return back(v, "/account#legal")
}

func (s *Web) eraseLegal(v *visit) error {
	if err := s.Accounts.EraseLegal(v.r.Context(), v.who); err != nil {
		return err
	}
	return back(v, "/account#legal")
}
