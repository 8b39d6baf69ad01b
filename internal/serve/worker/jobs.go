package worker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/nouns"
)

// KeepTelemetry is how long the history of GPUs is stored.
const KeepTelemetry = 30 * 24 * time.Hour

// Platform is what the standard jobs use. They need Accounts, Market, Clusters and Hosts of the nouns. Volumes,
// Buckets, Shared, Payments, Payouts and Postpaid may be nil: then there are no jobs for them. Outbox, Events and
// Reconciler are nil only if Payments is, Webhooks only if Sender is.
type Platform struct {
	nouns.Nouns
	DB          *db.DB
	Post        *notify.Post   // nil = no jobs for mail
	Sender      *notify.Sender // nil = no jobs for webhooks
	Dialer      *dialback.Dialer
	Holdback    time.Duration   // time before earnings are payable; 0 = payout.DefaultHoldback
	NewHoldback time.Duration   // the same for new operators; 0 = Holdback
	Currency    string          // "" = do not issue invoices
	Merchant    statement.Party // merchant of record on invoices
}

// Jobs returns the standard jobs. A job's interval is also the longest delay of its effect.
func Jobs(p Platform) []Job {
	jobs := []Job{
		{Name: "clusters", Every: time.Second, Run: func(ctx context.Context) (int, error) {
			r, err := p.Clusters.Watchdog.Pass(ctx)
			return r.Looked, err
		}},
		{Name: "quotes", Every: 2 * time.Second, Run: func(ctx context.Context) (int, error) {
			quotes, err := p.Market.ExpireQuotes(ctx)
			claims, err2 := host.ExpireClaims(ctx, p.DB, 500)
			return quotes + claims, errors.Join(err, err2)
		}},
		{Name: "logs", Every: 2 * time.Second, Limit: 5 * time.Minute, Run: func(ctx context.Context) (int, error) {
			return collectLogs(ctx, p.DB, p.Clusters.Logs, func(ctx context.Context, h id.Host, d agentapi.Dial) (io.ReadCloser,
				error) {
				return p.Dialer.Open(ctx, h, d)
			})
		}},
		{Name: "old logs", Every: 10 * time.Minute, Run: p.Clusters.Logs.DropOld},
		{Name: "abandoned hosts", Every: 30 * time.Second, Run: func(ctx context.Context) (int, error) {
			return host.AbandonClaims(ctx, p.DB)
		}},
		{Name: "vanished hosts", Every: time.Minute, Run: p.Hosts.RetireVanished},
		{Name: "data caps", Every: 10 * time.Second, Run: func(ctx context.Context) (int, error) {
			return host.LiftDataCaps(ctx, p.DB)
		}},
		{Name: "sweep", Every: 10 * time.Minute, Run: func(ctx context.Context) (int, error) {
			keys, err := idem.Sweep(ctx, p.DB)
			swept, err2 := p.Accounts.Sweep(ctx)
			changes, err3 := p.Market.Prune(ctx)
			traffic, err4 := host.DropOldTraffic(ctx, p.DB)
			letters, err5 := notify.SweepDeadLetters(ctx, p.DB.Q)
			gaps, err6 := host.DropOldGaps(ctx, p.DB)
			facts, err7 := p.Clusters.Hosts.DropOldFacts(ctx)
			links, err8 := account.DropEndedLinks(ctx, p.DB)
			return int(keys + swept.Sessions + swept.Attempts + changes + traffic + letters + gaps + facts + links),
				errors.Join(err, err2, err3, err4, err5, err6, err7, err8)
		}},
		{Name: "ledger chain", Every: 5 * time.Second, Run: func(ctx context.Context) (did int, err error) {
			for n := 1; n > 0 && err == nil && ctx.Err() == nil; did += n {
				n, err = ledger.Link(ctx, p.DB, ledger.BatchEvery)
			}
			return did, err
		}},
		{Name: "ledger days", Every: time.Hour, Limit: 30 * time.Minute, Run: func(ctx context.Context) (int, error) {
			closed, err := ledger.CloseDays(ctx, p.DB)
			checked, err2 := ledger.CheckDay(ctx, p.DB)
			return closed + checked, errors.Join(err, err2)
		}},
		{Name: "tax days and documents", Every: time.Hour, Limit: 30 * time.Minute, Run: func(ctx context.Context) (int,
			error) {
			closed, err := tax.CloseDays(ctx, p.DB)
			checked, err2 := tax.CheckDay(ctx, p.DB)
			advanced, err3 := document.Advance(ctx, p.DB)
			again, err4 := document.Recheck(ctx, p.DB)
			return closed + checked + advanced + again, errors.Join(err, err2, err3, err4)
		}},
		{Name: "earnings", Every: 5 * time.Minute, Run: func(ctx context.Context) (int, error) {
			return payout.MatureAfter(ctx, p.DB, payout.Holdback{
				Usual: cmp.Or(p.Holdback, payout.DefaultHoldback),
				New:   p.NewHoldback,
			})
		}},
		{Name: "budgets", Every: 5 * time.Minute, Run: func(ctx context.Context) (int, error) {
			_, err := budget.NotifyAll(ctx, p.DB)
			return 0, err
		}},
		{Name: "settled holds", Every: 10 * time.Minute, Run: func(ctx context.Context) (int, error) {
			return ledger.RetireHolds(ctx, p.DB)
		}},
		{Name: "telemetry partitions", Every: time.Hour, Run: func(ctx context.Context) (int, error) {
			return 0, host.TelemetryPartitions(ctx, p.DB, KeepTelemetry)
		}},
		{Name: "old rows", Every: time.Hour, Limit: 10 * time.Minute, Run: func(ctx context.Context) (int, error) {
			return dropOld(ctx, p.DB)
		}},
		{Name: "monthly partitions", Every: time.Hour, Run: func(ctx context.Context) (int, error) {
			created, dropped, err := p.DB.KeepPartitions(ctx)
			return created + dropped, err
		}},
	}
	if p.Volumes != nil {
		jobs = append(jobs,
			Job{Name: "volume packs", Every: 5 * time.Minute, Limit: 10 * time.Minute, Run: p.Volumes.Collector.Sweep},
			Job{Name: "volume scrub", Every: time.Minute, Limit: 10 * time.Minute, Run: p.Volumes.Scrubber.Scrub},
			Job{Name: "list of the store", Every: time.Minute, Limit: 10 * time.Minute, Run: p.Volumes.Inventory.Take},
			Job{Name: "storage", Every: 5 * time.Second, Limit: 10 * time.Minute, Run: p.Volumes.Meters.Charge},
			Job{Name: "unpaid storage", Every: 5 * time.Minute, Limit: 10 * time.Minute, Run: p.Volumes.Arrears.Erase},
			Job{Name: "storage check", Every: 24 * time.Hour, Limit: 30 * time.Minute, Run: p.Volumes.Meters.Verify},
			Job{Name: "sealing data keys again", Every: time.Minute, Limit: 10 * time.Minute, Run: p.Volumes.Catalog.Reseal})
	}
	if p.Shared != nil {
		jobs = append(jobs, Job{Name: "idle shared folders", Every: time.Hour, Limit: 10 * time.Minute,
			Run: p.Shared.EndIdle})
	}
	jobs = append(jobs, Job{
		Name:  "retention",
		Every: 24 * time.Hour,
		Limit: 10 * time.Minute,
		Run: func(ctx context.Context) (int, error) {
			erased, err := erasure.EndRetention(ctx, p.DB)
			booked, err2 := erasure.BookGivenUp(ctx, p.DB)
			return erased + booked, errors.Join(err, err2)
		},
	})
	if p.Currency != "" {
		jobs = append(jobs, Job{
			Name:  "invoices",
			Every: time.Hour,
			Limit: 10 * time.Minute,
			Run: func(ctx context.Context) (int, error) {
				return statement.New(p.DB, p.Currency, p.Merchant).IssueInvoices(ctx)
			},
		})
	}
	if p.Clusters != nil && p.Clusters.Secrets.Rotates() {
		jobs = append(jobs, Job{Name: "sealing again", Every: time.Minute, Limit: 10 * time.Minute,
			Run: p.Clusters.Secrets.Reseal})
	}
	if p.Accounts != nil && p.Accounts.SecondFactors.RotatesSecret() {
		jobs = append(jobs, Job{Name: "sealing second factors again", Every: time.Minute, Limit: 10 * time.Minute,
			Run: p.Accounts.SecondFactors.Reseal})
	}
	if p.Buckets != nil && p.Buckets.RotatesSecret() {
		jobs = append(jobs, Job{Name: "sealing secrets of buckets again", Every: time.Minute, Limit: 10 * time.Minute,
			Run: p.Buckets.Reseal})
	}
	if p.Post != nil {
		jobs = append(jobs,
			Job{Name: "mail", Every: 5 * time.Second, Limit: 10 * time.Minute, Run: p.Post.Run},
			Job{Name: "old mail", Every: time.Hour, Run: func(ctx context.Context) (int, error) {
				n, err := p.Post.Sweep(ctx)
				return int(n), err
			}})
	}
	if p.Sender != nil {
		jobs = append(jobs, Job{Name: "webhooks", Every: 2 * time.Second, Limit: 5 * time.Minute, Run: p.Sender.Run})
		if p.Webhooks.RotatesSecret() {
			jobs = append(jobs, Job{Name: "sealing webhook secrets again", Every: time.Minute, Limit: 10 * time.Minute,
				Run: p.Webhooks.Reseal})
		}
	}
	if p.Payouts != nil {
		jobs = append(jobs,
			Job{Name: "self-billing", Every: time.Hour, Limit: 10 * time.Minute, Run: p.Payouts.IssueSelfBills},
			Job{Name: "payouts", Every: 30 * time.Second, Limit: 10 * time.Minute, Run: p.Payouts.PayDue},
			Job{Name: "payout accounts", Every: 2 * time.Minute, Limit: 10 * time.Minute, Run: p.Payouts.PollAccounts})
	}
	if p.Postpaid != nil {
		jobs = append(jobs,
			Job{Name: "postpaid", Every: 30 * time.Second, Limit: 10 * time.Minute, Run: p.Postpaid.Charge},
			Job{Name: "postpaid invoices", Every: time.Minute, Limit: 10 * time.Minute, Run: p.Postpaid.Refresh})
	}
	if p.Payments != nil {
		jobs = append(jobs,
			Job{Name: "stripe outbox", Every: time.Second, Run: p.Outbox.SendDue},
			Job{Name: "stripe events", Every: time.Second, Run: p.Events.Process},
			Job{Name: "dispute claims", Every: 5 * time.Second, Run: p.Payments.Claims.Collect},
			Job{Name: "auto top-up", Every: 5 * time.Second, Run: p.Payments.AutoTopUps.Run},
			Job{
				Name:  "stripe reconciliation",
				Every: 2 * time.Minute,
				Limit: 10 * time.Minute,
				Run: func(ctx context.Context) (int, error) {
					r, err := p.Reconciler.Reconcile(ctx)
					return r.Matched, err
				},
			},
			Job{Name: "stripe poll", Every: time.Minute, Run: p.Payments.TopUps.Poll})
	}
	return jobs
}
