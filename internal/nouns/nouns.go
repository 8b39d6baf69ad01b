// Package nouns names the packages of the domain once, for the faces that serve them: the REST API, the dashboard, the
// background jobs and the server that wires them.
package nouns

import (
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// Nouns are the services of the domain. A face that works without one of them says so.
type Nouns struct {
	Accounts   *account.Accounts
	Market     *market.Market
	Hosts      *host.Hosts
	Clusters   *cluster.Clusters
	Templates  *template.Templates
	Volumes    *volume.Volumes
	Buckets    *bucket.Buckets
	Shared     *sharedfs.Shared
	Outbox     *outbox.Outbox
	Events     *events.Inbox
	Reconciler *reconcile.Reconciler
	Payments   *payment.Payments
	Payouts    *payout.Payouts
	Postpaid   *postpaid.Postpaid
	Bonds      *bond.Bonds
	Budgets    *budget.Budgets
	Leases     *metering.Leases
	Statements *statement.Statements
	Notices    *notify.Notices
	Webhooks   *notify.Webhooks
	Erasure    *erasure.Erasure
}
