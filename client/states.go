package client

// PaymentState is the state of money that moves by a card: a payment, a refund, the saving of a card.
type PaymentState string

// States of a payment.
const (
	PaymentPending   PaymentState = "pending"   // Stripe or the payer has yet to answer
	PaymentSucceeded PaymentState = "succeeded" // final: credited, refunded or saved
	PaymentFailed    PaymentState = "failed"    // final: see Failure
	PaymentCanceled  PaymentState = "canceled"  // final: the checkout page was left to expire
)

// PayoutState is the state of a payout.
type PayoutState string

// States of a payout.
const (
	PayoutPending PayoutState = "pending" // Stripe has yet to answer
	PayoutPaid    PayoutState = "paid"    // in the operator's account at Stripe, which pays it on to the operator's bank
	PayoutFailed  PayoutState = "failed"  // payable again: see Failure
)

// PayoutAccountState is how far an operator's account at Stripe is.
type PayoutAccountState string

// States of an operator's account.
const (
	PayoutAccountNone       PayoutAccountState = "none"       // not requested yet
	PayoutAccountMaking     PayoutAccountState = "making"     // requested, and Stripe has yet to answer
	PayoutAccountRefused    PayoutAccountState = "refused"    // Stripe refused to create it: see Failure
	PayoutAccountIncomplete PayoutAccountState = "incomplete" // Stripe requires more: see Due
	PayoutAccountChecking   PayoutAccountState = "checking"   // Stripe is verifying the details
	PayoutAccountReady      PayoutAccountState = "ready"      // money can be sent there
	PayoutAccountDisabled   PayoutAccountState = "disabled"   // Stripe switched it off: see Disabled
)

// PayoutReversalState is the state of a request to take a payout back.
type PayoutReversalState string

// States of a reversal. One that succeeded is no longer shown: the payout's Reversed has it.
const (
	PayoutReversalRequested PayoutReversalState = "asked"   // Stripe has yet to answer
	PayoutReversalRefused   PayoutReversalState = "refused" // nothing moved; it may be requested again
)

// PayoutAdvice is what the platform suggests to do with earnings that wait for a review.
type PayoutAdvice string

// Suggestions for a review.
const (
	AdviseRefuse  PayoutAdvice = "refuse"
	AdviseRelease PayoutAdvice = "release"
)

// PostpaidState is whether an organisation pays afterwards.
type PostpaidState string

// States of paying afterwards.
const (
	PostpaidOn     PostpaidState = "on"
	PostpaidEnding PostpaidState = "ending" // switched off: nothing more is lent, what was used is still billed
	PostpaidOff    PostpaidState = "off"    // pays ahead, the default
)

// WriteOffState is the state of an invoice that was given up.
type WriteOffState string

// States of a write-off.
const (
	WriteOffRequested WriteOffState = "asked"     // decided; Stripe has yet to confirm it
	WriteOffRefused   WriteOffState = "refused"   // by Stripe; it may be decided again
	WriteOffOvertaken WriteOffState = "overtaken" // the invoice was paid or voided first; nothing was written off
	WriteOffBooked    WriteOffState = "booked"    // bad debt, and its tax is owed no more
	WriteOffRecovered WriteOffState = "recovered" // the invoice was paid after all
	WriteOffVoided    WriteOffState = "voided"    // the invoice was voided after all: what it billed is owed again
)

// DocumentSeries is a gapless series of numbers.
type DocumentSeries string

// Series of documents.
const (
	SeriesReceipt     DocumentSeries = "receipt"
	SeriesCreditNote  DocumentSeries = "credit_note"
	SeriesSelfBilling DocumentSeries = "self_billing"
)

// TaxKind is what a line of the tax register is about.
type TaxKind string

// Kinds of tax lines.
const (
	TaxTopUp                 TaxKind = "topup"                   // credit was paid in
	TaxInvoice               TaxKind = "invoice"                 // usage was invoiced afterwards
	TaxInvoiceVoid           TaxKind = "invoice_void"            // the invoice was voided
	TaxWrittenOff            TaxKind = "invoice_writeoff"        // the invoice was given up
	TaxRecovered             TaxKind = "invoice_recovered"       // an invoice that was given up was paid after all
	TaxInvoiceRefund         TaxKind = "invoice_refund"          // the payment of an invoice was refunded, or a part of it
	TaxInvoiceRefundReturned TaxKind = "invoice_refund_returned" // a refund of an invoice did not arrive
	TaxRefund                TaxKind = "refund"                  // unused credit was refunded
	TaxRefundReturned        TaxKind = "refund_returned"         // a refund of credit did not arrive
	TaxDisputeLost           TaxKind = "dispute_lost"            // the card's owner took a payment back
)

// TaxReason is why a sale bears the tax it does.
type TaxReason string

// Reasons of taxes.
const (
	TaxOff           TaxReason = "off"            // the platform charges no taxes
	TaxHome          TaxReason = "home"           // the buyer is in the merchant's country
	TaxDestination   TaxReason = "destination"    // taxed in the buyer's country
	TaxReverseCharge TaxReason = "reverse_charge" // a business elsewhere in the EU accounts for the tax
	TaxOutside       TaxReason = "outside"        // the merchant collects no tax in the buyer's country
	TaxUntold        TaxReason = "untold"         // the buyer gave no country: taxed as in the merchant's
)

// Words names the reason for people.
func (r TaxReason) Words() string {
	switch r {
	case TaxHome:
		return "in your own country"
	case TaxDestination:
		return "taxed in the buyer's country"
	case TaxReverseCharge:
		return "reverse charge"
	case TaxOutside:
		return "no tax is collected there"
	case TaxUntold:
		return "the buyer gave no country"
	}
	return "no taxes charged"
}

// VATTreatment is the VAT on what an operator supplies to the merchant of record.
type VATTreatment string

// Treatments.
const (
	VATDomestic      VATTreatment = "domestic"       // a business in the merchant's country: any VAT is within the total
	VATReverseCharge VATTreatment = "reverse_charge" // the merchant, in another country, accounts for the VAT
	VATNoID          VATTreatment = "no_vat_id"      // charges no VAT, as far as is known
	VATUnknown       VATTreatment = "unknown"        // one side gave no country
)
