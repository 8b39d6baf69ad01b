// Package report tells people about their money: balances, statements, earnings. It only reads.
package report

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Balance is what a renter has and what it is being spent on.
type Balance struct {
	Available   money.Nano  `json:"available"`     // free to spend
	Held        money.Nano  `json:"held"`          // set aside for running clusters
	Accrued     money.Nano  `json:"accrued"`       // of Held, used already and not booked yet
	BurnPerHour money.Micro `json:"burn_per_hour"` // of clusters that are being billed now
	// RunwaySeconds is how long the money lasts at that rate; nil when nothing is being billed.
	RunwaySeconds *int64 `json:"runway_seconds"`
	Currency      string `json:"currency"`
}

// OrgBalance reads the org's balance.
func OrgBalance(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (Balance, error) {
	return Balance{}, notBuilt()
}

// Transaction is one entry of an org's books.
type Transaction struct {
	ID             id.LedgerTx `json:"id"`
	At             time.Time   `json:"at"`
	Kind           string      `json:"kind"` // topup, authorise, usage, hold_release, earning, …
	Memo           string      `json:"memo"`
	Ref            string      `json:"ref,omitempty"`   // prefixed id of the cluster or top-up
	Amount         money.Nano  `json:"amount"`          // change of available and held together; earnings for a host
	Available      money.Nano  `json:"available"`       // change
	Held           money.Nano  `json:"held"`            // change
	AvailableAfter money.Nano  `json:"available_after"` // right after it
	HeldAfter      money.Nano  `json:"held_after"`
	EarnedAfter    money.Nano  `json:"earned_after"`
}

// Transactions is the org's entries, newest first, those older than before (zero: from the newest).
func Transactions(ctx context.Context, q *dbq.Queries, org id.Org, before id.LedgerTx, limit int) ([]Transaction, error) {
	return nil, notBuilt()
}

// Usage is what a cluster used and costs, as the REST API shows it.
type Usage struct {
	BillableSeconds Seconds        `json:"billable_seconds"`
	GPUSeconds      Seconds        `json:"gpu_seconds"`
	Cost            money.Nano     `json:"cost"`        // of all proven time: the sum of the segments' costs
	Posted          money.Nano     `json:"posted"`      // of that, booked
	CostSoFar       money.Nano     `json:"cost_so_far"` // Cost, and what the last seconds will cost once they are proven
	EnergyWh        string         `json:"energy_wh"`   // decimal
	Settled         bool           `json:"settled"`     // nothing will change any more
	Currency        string         `json:"currency"`
	Segments        []UsageSegment `json:"segments"`
}

// Seconds are milliseconds shown as decimal seconds, "300.000".
type Seconds int64

// UsageSegment is one line of a statement: one signed segment at one price.
type UsageSegment struct {
	Rank         int         `json:"rank"`
	Lease        id.Lease    `json:"lease_id"`
	Epoch        int         `json:"epoch"`
	Seq          int64       `json:"seq"`
	From         time.Time   `json:"from"`
	To           time.Time   `json:"to"`
	Seconds      Seconds     `json:"seconds"`
	GPUs         int         `json:"gpus"`
	PricePerHour money.Micro `json:"price_per_hour"`
	Cost         money.Nano  `json:"cost"`
}

// ClusterUsage is the cluster's statement. The caller has checked that it may be seen.
func ClusterUsage(ctx context.Context, q *dbq.Queries, cluster id.Cluster) (Usage, error) {
	return Usage{}, notBuilt()
}

// Earnings is what a host earned.
type Earnings struct {
	Currency string         `json:"currency"`
	Total    money.Nano     `json:"total"`   // posted
	Pending  money.Nano     `json:"pending"` // accrued by running leases, not posted yet
	Leases   []LeaseEarning `json:"leases"`  // newest first
	Days     []DayEarning   `json:"days"`    // newest first, in the org's zone
}

// LeaseEarning is one lease's part.
type LeaseEarning struct {
	Lease     id.Lease   `json:"lease_id"`
	GPUModel  string     `json:"gpu_model"`
	GPUs      int        `json:"gpus"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Seconds   Seconds    `json:"seconds"` // billed
	Earned    money.Nano `json:"earned"`
	Frozen    bool       `json:"frozen,omitempty"` // conflicting accounts of its time: the money waits
}

// DayEarning is one day's part.
type DayEarning struct {
	Day    string     `json:"day"` // YYYY-MM-DD
	Earned money.Nano `json:"earned"`
}

// HostEarnings is what one of the org's hosts earned; another org's is fault.NotFound.
func HostEarnings(ctx context.Context, q *dbq.Queries, org id.Org, host id.Host) (Earnings, error) {
	return Earnings{}, notBuilt()
}

func notBuilt() error { return fault.New(fault.Unavailable, "not built yet") }
