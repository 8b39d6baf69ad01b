package payout

import (
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/tax"
)

// Treatment is the VAT on what an operator supplies to the merchant of record. It is kept in documents: never change
// the words.
type Treatment = client.VATTreatment

const (
	DomesticVAT      = client.VATDomestic      // a business in the merchant's country: any VAT is within the total
	ReverseChargeVAT = client.VATReverseCharge // the merchant, in another country, accounts for the VAT
	NoVATID          = client.VATNoID          // does not charge VAT, as far as is known
	UnknownVAT       = client.VATUnknown       // one side has given no country
)

// treat returns the treatment of a supply, by what both parties have given.
func treat(supplier, recipient account.Party) Treatment {
	eu := tax.EU()
	_, inEU := eu[supplier.Country]
	switch {
	case supplier.Country == "" || recipient.Country == "":
		return UnknownVAT
	case supplier.VATID == "" && (inEU || supplier.Country == recipient.Country):
		return NoVATID
	case supplier.Country == recipient.Country:
		return DomesticVAT
	}
	return ReverseChargeVAT
}

// noteOf returns the sentence on a treatment that belongs on the document.
func noteOf(t Treatment) string {
	switch t {
	case DomesticVAT:
		return "No VAT is paid on top of the total: VAT that the supplier owes is within it."
	case ReverseChargeVAT:
		return "Reverse charge: the recipient accounts for the VAT (Articles 44 and 196 of Directive 2006/112/EC, or the " +
			"law of its country)."
	case NoVATID:
		return "No VAT is shown: the supplier has given no VAT id."
	}
	return "No VAT is shown: the legal details of both parties are not complete."
}
