package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// TrialBalance is the platform's trial balance. Sums are whole nano-units as text, because they may be of any size.
type TrialBalance struct {
	Balanced bool        `json:"balanced"`
	Debits   string      `json:"debits_nano"`
	Credits  string      `json:"credits_nano"`
	Accounts []KindTotal `json:"accounts"`
	Problems []string    `json:"problems"`
}

// KindTotal is the balance of all accounts of a kind, credit minus debit.
type KindTotal struct {
	Kind     string `json:"kind"`
	Currency string `json:"currency"`
	Nano     string `json:"balance_nano"`
}

// LedgerEntry is one entry of the ledger.
type LedgerEntry struct {
	ID        string           `json:"id,omitempty"`
	Kind      string           `json:"kind"`
	Key       string           `json:"key"`
	Memo      string           `json:"memo"`
	Ref       string           `json:"ref,omitempty"`
	Corrects  string           `json:"corrects,omitempty"`
	At        string           `json:"at,omitempty"`
	Transfers []LedgerTransfer `json:"transfers"`
}

// LedgerTransfer is one transfer of an entry. The organisations are "" for the platform's own accounts.
type LedgerTransfer struct {
	Debit     string     `json:"debit" doc:"kind of account"`
	DebitOrg  string     `json:"debit_org,omitempty"`
	Credit    string     `json:"credit"`
	CreditOrg string     `json:"credit_org,omitempty"`
	Amount    money.Nano `json:"amount"`
	Currency  string     `json:"currency"`
}

// Reconciliation compares Stripe's balance with the ledger.
type Reconciliation struct {
	Currency   string         `json:"currency"`
	Stripe     money.Nano     `json:"stripe"`
	Clearing   money.Nano     `json:"clearing"`
	Difference money.Nano     `json:"difference"`
	Matched    int64          `json:"matched"`
	Waiting    int64          `json:"waiting"`
	Suspense   int64          `json:"suspense"`
	Open       []StripeChange `json:"open"`     // changes of Stripe's balance without an entry
	Unproven   []Unproven     `json:"unproven"` // entries without such a change
	Funds      *StripeFunds   `json:"funds,omitempty" doc:"what Stripe itself says it holds; absent before it was asked"`
}

// StripeFunds is what Stripe reports to hold for the platform.
type StripeFunds struct {
	Available money.Nano `json:"available" doc:"can be sent now"`
	Pending   money.Nano `json:"pending" doc:"on its way into available"`
	Reserved  money.Nano `json:"reserved" doc:"kept by Stripe for connected accounts that are below zero; in none of the others"`
	ReadAt    time.Time  `json:"asked_at"`
	Unread    money.Nano `json:"unread" doc:"of available and pending, what no change of the balance explains"`
	Unbooked  money.Nano `json:"books" doc:"available and pending, less what Stripe holds by the ledger"`
	OffSince  *time.Time `json:"off_since,omitempty"`
	Wrong     bool       `json:"wrong" doc:"unread is not 0 for more than half an hour"`
}

// StripeChange is a change of Stripe's balance that matches no entry.
type StripeChange struct {
	ID     string     `json:"id"`
	Type   string     `json:"type"`
	Source string     `json:"source,omitempty"`
	Amount money.Nano `json:"amount"`
	State  string     `json:"state"` // waiting, suspense
	At     time.Time  `json:"at"`
}

// Unproven is an entry that matches no change of Stripe's balance.
type Unproven struct {
	Key    string     `json:"key"`
	Kind   string     `json:"kind"`
	Ref    string     `json:"ref,omitempty"`
	Amount money.Nano `json:"amount"`
	At     time.Time  `json:"at"`
}

// FrozenLease is a lease whose money waits, because its host signed two conflicting reports of the same time.
type FrozenLease struct {
	Lease     id.Lease   `json:"lease_id"`
	Cluster   id.Cluster `json:"cluster_id"`
	Rank      int        `json:"rank"`
	Host      id.Host    `json:"host_id"`
	HostName  string     `json:"host_name"`
	Renter    id.Org     `json:"renter_org_id"`
	Operator  id.Org     `json:"host_org_id"`
	Currency  string     `json:"currency"`
	Posted    money.Nano `json:"posted" doc:"charged before it was frozen"`
	Waiting   money.Nano `json:"waiting" doc:"proven since: posted once it moves again"`
	Conflicts []Conflict `json:"conflicts" doc:"oldest first"`
}

// Conflict is a sequence number under which a host signed two different segments. From and To are those of the accepted
// one.
type Conflict struct {
	Epoch     int       `json:"epoch"`
	BootID    string    `json:"boot_id"`
	Seq       int64     `json:"seq"`
	From      time.Time `json:"from" doc:"of the account that stands"`
	To        time.Time `json:"to"`
	OtherFrom time.Time `json:"other_from"`
	OtherTo   time.Time `json:"other_to"`
	At        time.Time `json:"at" doc:"when it came"`
}

// UnfrozenLease is a lease whose money was released.
type UnfrozenLease struct {
	Lease id.Lease `json:"lease_id"`
}

// RefusedSegment is a usage segment that was refused.
type RefusedSegment struct {
	ID     int64     `json:"id"`
	Host   id.Host   `json:"host_id"`
	Lease  string    `json:"lease_id" doc:"as the host named it"`
	Reason string    `json:"reason" doc:"bad_signature, foreign_lease, conflict, future, …"`
	Why    string    `json:"why" doc:"for people"`
	Epoch  int       `json:"epoch"`
	BootID string    `json:"boot_id"`
	Seq    int64     `json:"seq"`
	From   time.Time `json:"from" doc:"what it claims"`
	To     time.Time `json:"to"`
	At     time.Time `json:"at" doc:"when it came"`
}

// HeldCredit is a credit for a host's failure that waits for an admin's decision.
type HeldCredit struct {
	Lease    id.Lease   `json:"lease_id"`
	Cluster  id.Cluster `json:"cluster_id"`
	Rank     int        `json:"rank"`
	Host     id.Host    `json:"host_id"`
	HostName string     `json:"host_name"`
	Renter   id.Org     `json:"renter_org_id"`
	Operator id.Org     `json:"host_org_id"`
	Reason   string     `json:"reason" doc:"of the failure: gpu_failed, host_lost, …"`
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	Amount   money.Nano `json:"amount" doc:"what approving it credits, as of the charges so far"`
	Booked   money.Nano `json:"booked" doc:"what was credited without a decision; refusing the rest does not take it back"`
	Currency string     `json:"currency"`
	At       time.Time  `json:"at" doc:"when the host failed"`
}

// DecidedCredit is a credit that was approved or refused.
type DecidedCredit struct {
	Lease    id.Lease `json:"lease_id"`
	Approved bool     `json:"approved"`
}

// CompensateChargeRequest is the body of CompensateCharge.
type CompensateChargeRequest struct {
	Amount string `json:"amount,omitempty" doc:"a decimal; left out: all that is left of the charge"`
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"renter and operator read it"`
}

// UnfreezeLeaseRequest is the body of UnfreezeLease.
type UnfreezeLeaseRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the host's operator reads it"`
}

// DecideHeldCreditRequest is the body of DecideHeldCredit.
type DecideHeldCreditRequest struct {
	Approve bool   `json:"approve" doc:"true books the credit, false refuses it for good"`
	Reason  string `json:"reason" minLength:"1" maxLength:"500" doc:"kept in the audit trail"`
}

// RemitTaxRequest is the body of RemitTax.
type RemitTaxRequest struct {
	Period  string `json:"period" maxLength:"10" doc:"a year, quarter or month in UTC that is over" example:"2026-Q1"`
	Country string `json:"country" minLength:"2" maxLength:"2" doc:"as the report names it" example:"DE"`
	Amount  string `json:"amount" doc:"a decimal: at most what is left of the period" example:"1234.56"`
	Reason  string `json:"reason" minLength:"1" maxLength:"500" doc:"such as the reference of the bank's transfer; the audit trail keeps it"`
}

// LedgerQuery searches the ledger.
type LedgerQuery struct {
	PageOf
	Q string `query:"q" required:"true" minLength:"1" maxLength:"200" doc:"an entry's id or key, or the prefixed id of what it belongs to; an organisation's: all that moved its money"`
}

// TaxQuery selects the period of a tax report.
type TaxQuery struct {
	Period string `query:"period" required:"true" maxLength:"10" doc:"a year, quarter or month, in UTC" example:"2026-Q1"`
}
