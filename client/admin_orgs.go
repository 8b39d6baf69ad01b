package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Attention counts what needs an admin now.
type Attention struct {
	PayoutFailures int64      `json:"payout_failures"`
	PayoutsStopped int64      `json:"payouts_stopped"`
	Reviews        int64      `json:"reviews"`
	InReview       money.Nano `json:"in_review"`
	Disputes       int64      `json:"disputes"`
	Disputed       money.Nano `json:"disputed"`
	InvoicesUnpaid int64      `json:"invoices_unpaid"` // by Stripe, and not given up
	Frozen         int64      `json:"frozen_leases"`
	Quarantined    int64      `json:"quarantined"`
	OutboxUnknown  int64      `json:"outbox_unknown"`
	MailFailed     int64      `json:"mail_failed"`
	DeadLetters    int64      `json:"dead_letters"` // rows that a background job could not process for three days
	Currency       string     `json:"currency"`
}

// PlatformTotals is the fleet now, and the demand of the last seven days beside that of the seven days before.
type PlatformTotals struct {
	Hosts            int64 `json:"hosts" doc:"hosts that are not retired" example:"412"`
	HostsConnected   int64 `json:"hosts_connected" doc:"hosts whose agent is connected" example:"397"`
	GPUs             int64 `json:"gpus" doc:"GPUs of these hosts" example:"3296"`
	GPUsRented       int64 `json:"gpus_rented" doc:"GPUs of running and starting clusters" example:"2410"`
	ClustersStarting int64 `json:"clusters_starting" doc:"clusters that have not run yet" example:"6"`
	ClustersRunning  int64 `json:"clusters_running" doc:"clusters that run" example:"318"`
	SignUps          int64 `json:"sign_ups" doc:"accounts created in the last seven days" example:"57"`
	SignUpsBefore    int64 `json:"sign_ups_before" doc:"accounts created in the seven days before" example:"49"`
	Rents            int64 `json:"rents" doc:"clusters rented in the last seven days" example:"1904"`
	RentsBefore      int64 `json:"rents_before" doc:"clusters rented in the seven days before" example:"1777"`
	Failed           int64 `json:"failed" doc:"clusters rented in the last seven days that failed" example:"21"`
	FailedBefore     int64 `json:"failed_before" doc:"clusters rented in the seven days before that failed" example:"30"`
}

// DeadLetter is a row that a background job cannot process. The job retries it automatically.
type DeadLetter struct {
	Queue    string     `json:"queue" doc:"the background job"`
	Ref      string     `json:"ref" doc:"the row: a prefixed id, or the id of an object at Stripe"`
	Attempts int        `json:"attempts" doc:"failed attempts since failing_since"`
	Error    string     `json:"error" doc:"of the last attempt"`
	Since    time.Time  `json:"failing_since"`
	FailedAt time.Time  `json:"failed_at" doc:"the last attempt"`
	ParkedAt *time.Time `json:"parked_at,omitempty" doc:"when it had failed for three days; it is retried once a day since"`
}

// DeadLetters lists the rows that background jobs cannot process.
type DeadLetters struct {
	Items []DeadLetter `json:"items"`
}

// FoundOrg is an organisation in a list.
type FoundOrg struct {
	ID        id.Org     `json:"id"`
	Name      string     `json:"name"`
	LegalName string     `json:"legal_name,omitempty"`
	Email     string     `json:"email"` // of its first owner
	Verified  bool       `json:"email_verified"`
	Personal  bool       `json:"personal"`
	Hosts     int        `json:"hosts"`
	Clusters  int        `json:"clusters"`
	Available money.Nano `json:"available"`
	Held      money.Nano `json:"held"`
	Pending   money.Nano `json:"pending"`
	Payable   money.Nano `json:"payable"`
	Currency  string     `json:"currency"`
	CreatedAt time.Time  `json:"created_at"`
}

// OrgDetail is everything that an admin sees of an organisation.
type OrgDetail struct {
	FoundOrg
	Members     []OrgUser     `json:"members"`
	HostList    []OrgHost     `json:"host_list"`    // at most 100, retired ones last
	ClusterList []OrgCluster  `json:"cluster_list"` // at most 100, those that run first
	Disputes    []Dispute     `json:"disputes"`     // of its payments, at most 100, newest first
	Legal       *Legal        `json:"legal" doc:"null: it has not said who it is"`
	FeePPM      int           `json:"fee_ppm" doc:"of its hosts' new leases"`
	Earnings    PayoutBalance `json:"earnings"`
	Account     PayoutAccount `json:"account"`
}

// OrgUser is a user of an organisation, as admins see it.
type OrgUser struct {
	User     id.User `json:"user_id"`
	Email    string  `json:"email"`
	Name     string  `json:"name"`
	Role     string  `json:"role"`
	Verified bool    `json:"email_verified"`
	Admin    bool    `json:"admin"` // an admin
}

// OrgHost is a host in an organisation's list.
type OrgHost struct {
	ID         id.Host    `json:"id"`
	Name       string     `json:"name"`
	Region     string     `json:"region"`
	State      string     `json:"state"`
	Blocked    string     `json:"blocked,omitempty"` // why it sells nothing
	Connected  bool       `json:"connected"`
	LastSyncAt *time.Time `json:"last_sync_at"`
	GPUs       int        `json:"gpus"`
	Leased     int        `json:"gpus_leased"`
}

// OrgCluster is a cluster in an organisation's list.
type OrgCluster struct {
	ID           id.Cluster  `json:"id"`
	Name         string      `json:"name"`
	State        string      `json:"state"`
	Reason       string      `json:"reason,omitempty"`
	Nodes        int         `json:"nodes"`
	GPUs         int         `json:"gpus"` // of all nodes
	PricePerHour money.Micro `json:"price_per_hour"`
	CreatedAt    time.Time   `json:"created_at"`
	EndedAt      *time.Time  `json:"ended_at"`
}

// Dispute is a payment that its card's owner takes back, or a refund of an invoice that an admin made at Stripe. While
// it is open, hosts are not paid what they earned with it.
type Dispute struct {
	ID        string     `json:"id"`       // Stripe's
	Kind      string     `json:"kind"`     // dispute, refund
	TopUp     id.TopUp   `json:"topup_id"` // zero: of an invoice
	Invoice   string     `json:"invoice_id,omitempty"`
	Amount    money.Nano `json:"amount"`
	SetAside  money.Nano `json:"set_aside"` // of the wallet
	Currency  string     `json:"currency"`
	Reason    string     `json:"reason"`
	State     string     `json:"state"` // open, won, lost; of a refund: open, released, returned
	CreatedAt time.Time  `json:"created_at"`
	ClosedAt  *time.Time `json:"closed_at"`
}

// Operator is what an admin decides about an operator.
type Operator struct {
	OrgID   id.Org        `json:"org_id"`
	FeePPM  int           `json:"fee_ppm" doc:"of new leases"`
	Account PayoutAccount `json:"account"`
}

// OperatorPayout is a payout with the operator it goes to.
type OperatorPayout struct {
	Payout
	Org id.Org `json:"org_id"`
}

// NextPayout is what a payout to an operator would be if it were made now. Why says why there would be none.
type NextPayout struct {
	Org      id.Org        `json:"org_id"`
	OrgName  string        `json:"org_name"`
	Payable  money.Nano    `json:"payable"`
	Amount   money.Nano    `json:"amount"` // of Payable, what would be sent; 0 when nothing can be
	Why      string        `json:"why,omitempty"`
	NextAt   *time.Time    `json:"next_at"`  // null: no account
	Failures int           `json:"failures"` // in a row
	Failure  string        `json:"failure,omitempty"`
	Account  PayoutAccount `json:"account"`
}

// AuditEvent is one record of the audit log.
type AuditEvent struct {
	ID      string         `json:"id"`
	At      string         `json:"at"` // RFC 3339 in UTC, with microseconds
	Org     string         `json:"org_id,omitempty" doc:"of who acted"`
	OrgName string         `json:"org_name,omitempty"`
	User    string         `json:"user_id,omitempty"`
	Email   string         `json:"email,omitempty"`
	Token   string         `json:"token_id,omitempty"`
	Action  string         `json:"action"`
	Object  string         `json:"object,omitempty"`
	Detail  map[string]any `json:"detail" doc:"of a shell, say: node, key, kind"`
	Address string         `json:"address,omitempty"`
}

// PayoutReview is an operator and a renter who seem to be the same person.
type PayoutReview struct {
	ID        id.PayoutReview `json:"id"`
	Operator  id.Org          `json:"host_org_id"`
	Renter    id.Org          `json:"renter_org_id"`
	Reasons   []string        `json:"reasons"`   // member, vat_id, legal_name, card, lost_dispute
	InReview  money.Nano      `json:"in_review"` // past the holdback, and to be decided on
	Released  money.Nano      `json:"released"`
	Refused   money.Nano      `json:"refused"`
	Currency  string          `json:"currency"`
	Decision  string          `json:"decision,omitempty"` // why, of the last one
	DecidedAt *time.Time      `json:"decided_at,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	// Limit is how much a review holds in all that was opened for a lost dispute alone: what was lost. nil: all the renter
	// pays.
	Limit  *money.Nano  `json:"limit,omitempty"`
	Advice PayoutAdvice `json:"advice,omitempty" enum:"refuse,release" doc:"what to do when nothing else is known; nothing is released without a person"`
}

// StandingState is whether an organisation may add money and rent as usual.
type StandingState string

// States of an organisation's standing.
const (
	StandingOK StandingState = "ok"
	// StandingDisputed means that a payment of the organisation is disputed. It rents with prepaid money only, and what
	// it adds is limited.
	StandingDisputed StandingState = "disputed"
	// StandingSuspended means that the organisation has lost several disputes. It adds nothing and rents nothing new
	// until an admin forgives them.
	StandingSuspended StandingState = "suspended"
)

// Standing is how much an organisation may add and rent. Amounts are in its currency.
type Standing struct {
	EmailVerified bool        `json:"email_verified"` // of an owner
	CardVerified  bool        `json:"card_verified"`  // a saved one, which its bank accepted
	Limit         *money.Nano `json:"limit"`          // what may be added in all; nil: any amount
	Added         money.Nano  `json:"added"`          // without tax; payments under way included
	Left          *money.Nano `json:"left"`
	// State, and what disputed payments claim: it is set aside or repaid from whatever is credited.
	State    StandingState `json:"state" enum:"ok,disputed,suspended"`
	Disputed money.Nano    `json:"disputed"` // of open disputes, tax included
	Short    money.Nano    `json:"short"`    // of Disputed, not set aside yet
	Debt     money.Nano    `json:"debt"`     // of lost disputes, not repaid yet
	// what may be added while a payment is disputed; null: it is not limited by that
	DisputedLeft *money.Nano `json:"disputed_left"`
	LostDisputes int64       `json:"lost_disputes"` // the third suspends the org
}

// OrgStanding is an organisation with open disputes, or a suspended one.
type OrgStanding struct {
	Org     id.Org        `json:"org_id"`
	Name    string        `json:"name"`
	State   StandingState `json:"state" enum:"disputed,suspended"`
	Open    int64         `json:"open" doc:"disputes that are not decided"`
	Lost    int64         `json:"lost" doc:"disputes that were decided for the card's owner"`
	Debt    money.Nano    `json:"debt" doc:"what lost disputes cost and is not repaid"`
	Changed time.Time     `json:"changed_at"`
}

// OrgStandings lists organisations that are not in good standing.
type OrgStandings struct {
	Items []OrgStanding `json:"items"`
}

// DisputesForgiven is the organisation whose lost disputes were forgiven.
type DisputesForgiven struct {
	ID id.Org `json:"id"`
}

// RefundAllowed is the organisation that may take back more than the limit on refunds.
type RefundAllowed struct {
	ID id.Org `json:"id"`
}

// RunPayoutsRequest is the body of RunPayouts.
type RunPayoutsRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// ForgiveDisputesRequest is the body of ForgiveDisputes.
type ForgiveDisputesRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// AllowRefundRequest is the body of AllowRefund.
type AllowRefundRequest struct {
	Amount string `json:"amount" doc:"a decimal, in whole cents, without tax" example:"25.00"`
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// ReviewDecision is the body of ReleasePayoutReview and RefusePayoutReview.
type ReviewDecision struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"kept in the audit trail; of a refusal, the operator reads it"`
}

// OrgsQuery selects organisations.
type OrgsQuery struct {
	PageOf
	Q string `query:"q" maxLength:"200" doc:"an organisation's id, or a part of its name, its legal name or a member's e-mail address"`
}

// RedemptionsQuery selects redemptions of promo codes.
type RedemptionsQuery struct {
	PageOf
	Code string `query:"code" maxLength:"100" doc:"of this code alone"`
	Org  string `query:"org_id" maxLength:"100" doc:"by this organisation alone"`
}

// PayoutReviewsQuery selects reviews of earnings.
type PayoutReviewsQuery struct {
	PageOf
	Waiting bool   `query:"waiting" doc:"only those with something to decide on"`
	Org     string `query:"org_id" maxLength:"100" doc:"of this operator or renter alone"`
}

// AuditQuery selects events of the audit log.
type AuditQuery struct {
	PageOf
	Q      string `query:"q" maxLength:"200" doc:"an object's id, the beginning of the e-mail address of who acted, or a part of the details"`
	Action string `query:"action" maxLength:"100" doc:"a word such as payout.stop or cluster.shell, or its noun: payout"`
}

// AllAuditQuery selects events of the audit logs of all organisations.
type AllAuditQuery struct {
	PageOf
	Q      string `query:"q" maxLength:"200" doc:"an object's id, the beginning of the e-mail address of who acted, or a part of the details"`
	Action string `query:"action" maxLength:"100" doc:"a word such as payout.stop or cluster.shell, or its noun: payout"`
	Org    string `query:"org_id" maxLength:"100" doc:"what this organisation did, and what was done to it"`
}
