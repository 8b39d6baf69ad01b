package server

import (
	"context"
	"io"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/restore"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// AdoptRestore makes the database of cfg the platform's after it was restored to an earlier time; see package restore.
// It writes its log to out.
func AdoptRestore(ctx context.Context, cfg Config, o restore.Options, out io.Writer) (r restore.Report, err error) {
	log := newLogger(out, cfg)
	if cfg.Migrate {
		if err := db.Migrate(ctx, string(cfg.DatabaseURL)); err != nil {
			return r, err
		}
	}
	d, err := db.Open(ctx, db.Config{URL: string(cfg.DatabaseURL), MaxConns: 4})
	if err != nil {
		return r, err
	}
	defer d.Close()
	if !cfg.Sandbox() && !o.NothingLost {
		sc, pc, err := cfg.stripe()
		if err != nil {
			return r, err
		}
		if sc.WebhookSecret == "" {
			sc.WebhookSecret = "none" // this process receives no events
		}
		client, err := stripe.New(sc)
		if err != nil {
			return r, err
		}
		out := outbox.New(d, client, log)
		in := events.New(d, client, log)
		o.Reconciler = reconcile.New(d, client, in.Refresh, pc.Currency, log)
		pay, err := payment.New(d, out, in, pc, log)
		if err != nil {
			return r, err
		}
		o.Payments = pay.Adoption
		if o.Payouts, err = payout.New(d, out, in, cfg.payouts(), log); err != nil {
			return r, err
		}
		if _, err := postpaid.New(d, out, pay.Invoices, postpaid.Config{Currency: cfg.Currency}, // books invoices
			log); err != nil {
			return r, err
		}
	}
	return restore.Adopt(ctx, d, o)
}
