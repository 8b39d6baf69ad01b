// Package tax determines what tax a sale bears, and keeps the tax book.
//
// Prices and wallets exclude tax. It arises when money is paid in (docs/adr, "tax arises when money is paid in"), so a
// sale here is a payment: a top-up, or the invoice of an org that pays afterwards.
//
// What always holds:
//   - What a payment bears is decided once, before the payer pays, and kept with the payment. A rate or an address that
//     changes later changes nothing of it.
//   - Σ tax of the book (tax_entry), less what was paid to tax offices (tax_remittance), is the balance of the ledger's
//     tax_payable: both are written in one transaction.
//   - No tax office is paid more than is owed to its country for a period that is over.
//   - What is given back of a payment takes its tax along in proportion, by cumulative floors: never more than was
//     charged, and all of it when all is given back.
package tax

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// Kind is what a line of the book is about.
type Kind = client.TaxKind

const (
	TopUp                 = client.TaxTopUp                 // credit was paid in
	Invoice               = client.TaxInvoice               // usage was invoiced afterwards
	InvoiceVoid           = client.TaxInvoiceVoid           // the invoice was taken back
	WrittenOff            = client.TaxWrittenOff            // it was given up
	Recovered             = client.TaxRecovered             // and paid after all
	InvoiceRefund         = client.TaxInvoiceRefund         // its payment was given back, or a part of it
	InvoiceRefundReturned = client.TaxInvoiceRefundReturned // that did not get there
	Refund                = client.TaxRefund                // unused credit goes back
	RefundReturned        = client.TaxRefundReturned        // it did not get there
	DisputeLost           = client.TaxDisputeLost           // the card's owner took a payment back
)

// Sale is what a tax is determined for.
type Sale struct {
	Kind     Kind   // TopUp or Invoice
	Country  string // the buyer's, ISO 3166-1 alpha-2; "": they gave none
	VATID    string // the buyer's, in the form account.NormalVATID gives it; "": none
	Cents    int64  // without tax, 0 or more
	Currency string // ISO 4217, upper case
}

// Reason is why a sale bears the tax it does. It is kept with payments: never change the words.
type Reason = client.TaxReason

const (
	Off           = client.TaxOff           // the platform charges no taxes
	Home          = client.TaxHome          // the buyer is in the merchant's country
	Destination   = client.TaxDestination   // taxed in the buyer's country
	ReverseCharge = client.TaxReverseCharge // a business elsewhere in the EU accounts for it
	Outside       = client.TaxOutside       // the buyer's country is none in which the merchant collects tax
	Untold        = client.TaxUntold        // the buyer gave no country: taxed as in the merchant's
)

// Tax is what a sale bears.
type Tax struct {
	Cents   int64
	PPM     int64  // the rate, in parts per million of the price
	Name    string // of the tax, such as VAT; "" where there is none
	Country string // where the sale is taxed or would be; "": unknown
	VATID   string // the buyer's, where it is why there is no tax
	Reason  Reason
}

// Taxer determines what tax a sale bears. It may use a network: call it outside of transactions. After an error the tax
// is unknown, and nothing may be charged.
type Taxer interface {
	Tax(ctx context.Context, s Sale) (Tax, error)
}

// None is a platform that charges no taxes.
type None struct{}

// Tax is nothing.
func (None) Tax(_ context.Context, s Sale) (Tax, error) {
	return Tax{Country: s.Country, Reason: Off}, nil
}

// Amount returns the tax in nano-units.
func (t Tax) Amount() money.Nano { return money.Nano(t.Cents) * money.Cent }

// Percent returns the rate as people write it: "19", "25.5".
func Percent(ppm int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%04d", ppm/10_000, ppm%10_000), "0"), ".")
}

// Label names tax and rate: "VAT 19 %"; "" where there is none.
func Label(name string, ppm int64) string {
	if ppm == 0 {
		return ""
	}
	return name + " " + Percent(ppm) + " %"
}

// Note returns the sentence that belongs on the invoice of a sale taxed for this reason, "" for none. country is where
// it is taxed.
func Note(r Reason, country string) string {
	switch r {
	case ReverseCharge:
		return "Reverse charge: the customer accounts for the VAT (Article 196 of Directive 2006/112/EC)."
	case Outside:
		return "No tax is charged to customers in " + country + "."
	case Untold:
		if country == "" {
			return "We don't know your country yet, so no tax is added."
		}
		return "Taxed as in " + country + ", because we don't know your country yet."
	}
	return ""
}

// Of returns the tax on a price, rounded half up. 0 ≤ cents, 0 ≤ ppm ≤ 1e6.
func Of(cents, ppm int64) int64 {
	if cents < 0 || ppm < 0 || ppm > million {
		panic("tax: " + strconv.FormatInt(cents, 10) + " cents at " + strconv.FormatInt(ppm, 10) + " ppm")
	}
	hi, lo := bits.Mul64(uint64(cents), uint64(ppm))
	lo, carry := bits.Add64(lo, million/2, 0)
	q, _ := bits.Div64(hi+carry, lo, million)
	return int64(q)
}

const million = 1_000_000

// Back returns how much of a payment's tax goes back with the next part of it: floor(tax × (before + part) / whole),
// less what went back before, so that all parts together take the whole tax along and no part more. All in one unit;
// before is what went back of the whole so far, and gone what went back of the tax. 0 ≤ result ≤ tax − gone.
func Back(tax, whole, before, part, gone int64) int64 {
	if tax < 0 || before < 0 || part < 0 || gone < 0 {
		panic("tax: negative amounts")
	}
	due := tax
	if before+part < whole {
		hi, lo := bits.Mul64(uint64(tax), uint64(before+part))
		q, _ := bits.Div64(hi, lo, uint64(whole))
		due = int64(q)
	}
	return max(0, min(due, tax)-gone)
}
