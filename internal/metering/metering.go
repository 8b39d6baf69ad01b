// Package metering turns proven time into money: leases, billing windows, prices, signed segments, authorisation and
// charges.
package metering

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// OpenWindow starts a billing window of the cluster: the last required rank reports that its workload runs. at is
// PostgreSQL's clock. A window that is already open stays as it is; at before the end of the last one is moved there.
func OpenWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	return notBuilt()
}

// AdvanceConfirmed says that all required ranks were well at the given moment: the earliest of their last good
// reports. Time up to it may be posted. It never goes back and never past run_until; without an open window it does
// nothing.
func AdvanceConfirmed(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	return notBuilt()
}

// CloseWindow ends the open window, at the given moment for an orderly end. at before confirmed_until, or zero,
// suspends: the window ends at confirmed_until. Without an open window it does nothing and closed is false.
func CloseWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) (closed bool, err error) {
	return false, notBuilt()
}

// AuthoriseRequest asks for a cluster to run on for up to an hour from now.
type AuthoriseRequest struct {
	Cluster  id.Cluster
	Org      id.Org // whose wallet
	Currency string
	Budget   *money.Nano // of the cluster, over its life; nil = none
	NotAfter *time.Time  // latest end, such as the start plus max_duration; nil = none
}

// Limit is why an authorisation ends earlier than it could.
type Limit string

const (
	LimitNone     Limit = ""
	LimitFunds    Limit = "funds"
	LimitBudget   Limit = "budget"
	LimitDuration Limit = "max_duration"
)

// Authorisation is until when a cluster may run, backed by money that is held.
type Authorisation struct {
	RunUntil time.Time
	Held     money.Nano // in the cluster's hold now
	// Limit says what keeps RunUntil from going further, for warnings and for the reason of the end.
	Limit Limit
}

// Authorise moves money from the wallet into the cluster's hold, so that every millisecond the cluster could still be
// billed up to RunUntil is covered, and stamps RunUntil on its live leases. RunUntil is at most an hour ahead and
// never goes back; it stays as it is while enough of it is left, so calling it often is cheap. When money, budget or
// duration are short it goes as far as they reach.
//
// The first time at least 60 s must be affordable: else fault.InsufficientFunds, or fault.Invalid for the budget.
// The caller holds the cluster's lock.
func Authorise(ctx context.Context, tx *db.Tx, r AuthoriseRequest) (Authorisation, error) {
	return Authorisation{}, notBuilt()
}

// Ingest takes in a host's segments in one transaction: checks them, stores them, and posts what they add to the
// bill. The acks name what the journal may let go of: what is committed, and what will never be accepted, with the
// reason. An error means nothing was taken and the agent sends again.
func Ingest(ctx context.Context, d *db.DB, host id.Host, segs []agentapi.Segment) ([]agentapi.UsageAck, error) {
	return nil, notBuilt()
}

// Post books what the cluster's proven, confirmed time costs beyond what is posted already.
func Post(ctx context.Context, tx *db.Tx, cluster id.Cluster) error { return notBuilt() }

// Settle posts what can be posted and gives back what can no longer be needed of the hold. It is done when every
// lease has ended and either its whole time is proven, its final segment has arrived, or 24 h have passed; then the
// rest of the hold goes back to the wallet and later segments are refused. Call it at the end and then now and again
// until done. Calling it again after that changes nothing.
func Settle(ctx context.Context, tx *db.Tx, cluster id.Cluster) (done bool, err error) {
	return false, notBuilt()
}

// Unsettled lists clusters whose leases have all ended and are not settled, oldest end first.
func Unsettled(ctx context.Context, q *dbq.Queries, limit int) ([]id.Cluster, error) {
	return nil, notBuilt()
}

// IssueAnchor ties the host's boot clock to PostgreSQL's: a new anchor when the last one of this boot is five minutes
// old, else nil. bootMS is the host's CLOCK_BOOTTIME when it sent its report.
func IssueAnchor(ctx context.Context, tx *db.Tx, host id.Host, bootID string, bootMS int64) (*agentapi.Anchor, error) {
	return nil, notBuilt()
}

// Usage is what a cluster used and what it costs.
type Usage struct {
	Currency   string
	BillableMS int64      // lease time, the longest lease: the cluster's billed wall time
	GPUMS      int64      // Σ over leases of GPUs × billed time
	Cost       money.Nano // floor per lease of the exact charge of all proven time
	Posted     money.Nano // of Cost, what the books hold already
	EnergyMJ   int64
	Lines      []UsageLine
}

// UsageLine is the part of one signed segment that falls into one window and one price.
type UsageLine struct {
	Lease    id.Lease
	Rank     int
	Epoch    int
	Seq      int64
	From, To time.Time
	MS       int64
	GPUs     int
	Rate     money.Micro
	Cost     money.Nano // cumulative floor differences: the lines of a lease add up to its charge exactly
}

// ClusterUsage reads the cluster's usage. The lines' costs add up to Cost; once settled, Cost equals Posted.
func ClusterUsage(ctx context.Context, q *dbq.Queries, cluster id.Cluster) (Usage, error) {
	return Usage{}, notBuilt()
}
