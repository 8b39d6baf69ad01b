package server

import (
	"context"
	"net/http"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

// openPayments connects to Stripe or, without a key, to a fake Stripe of our own behind the same client.
func (s *Server) openPayments(ctx context.Context) error {
	sc, pc, err := s.cfg.stripe()
	if err != nil {
		return err
	}
	if s.cfg.Sandbox() {
		if sc, err = s.openSandbox(ctx); err != nil {
			return err
		}
		pc.DefaultMethod = "pm_card_visa"
	}
	client, err := stripe.New(sc)
	if err != nil {
		return err
	}
	s.Outbox = outbox.New(s.db, client, s.log)
	s.Events = events.New(s.db, client, s.log)
	s.Reconciler = reconcile.New(s.db, client, s.Events.Refresh, pc.Currency, s.log)
	s.Payments, err = payment.New(s.db, s.Outbox, s.Events, pc, s.log)
	return err
}

// stripe returns the configurations of the Stripe client and of payments.
func (c *Config) stripe() (sc stripe.Config, pc payment.Config, err error) {
	sc = stripe.Config{Key: string(c.StripeKey), WebhookSecret: string(c.StripeWebhookSecret), URL: c.stripeURL}
	pc = payment.Config{
		Currency:  c.Currency,
		ReturnURL: c.PublicURL + "/billing?returned=1",
		Sandbox:   c.Sandbox(),
		TestCards: c.Sandbox(),
		Merchant:  c.merchant(),
	}
	if pc.UnverifiedLimit, err = c.unverifiedLimit(); err != nil {
		return sc, pc, err
	}
	if pc.RefundLimit, err = c.refundLimit(); err != nil {
		return sc, pc, err
	}
	pc.Taxer, err = c.taxer()
	return sc, pc, err
}

// openSandbox serves our own Stripe on loopback. Each replica has one; their state is in the database.
func (s *Server) openSandbox(ctx context.Context) (c stripe.Config, err error) {
	secret, err := s.cfg.sandboxSecret()
	if err != nil {
		return c, err
	}
	l, err := listen("127.0.0.1:0", "", "")
	if err != nil {
		return c, err
	}
	s.onClose(l.close)
	c = stripe.Config{Key: "sk_test_sandbox", WebhookSecret: secret, URL: "http://" + l.addr()}
	fake, err := sandbox.New(sandbox.Config{
		WebhookSecret: c.WebhookSecret,
		DB:            s.db,
		Earlier:       s.cfg.SandboxFile,
		PublicURL:     s.cfg.PublicURL + "/sandbox",
	})
	if err != nil {
		return c, err
	}
	l.handler, s.sandbox = fake, http.StripPrefix("/sandbox", fake.Pages())
	l.serve(s.log)
	push, stop := context.WithCancel(context.WithoutCancel(ctx))
	pushed := make(chan struct{})
	s.onClose(func(ctx context.Context) error {
		stop()
		select {
		case <-pushed:
		case <-ctx.Done(): // the database is unavailable; what was accepted is delivered again
		}
		return nil
	})
	go func() {
		defer close(pushed)
		fake.Webhooks.Push(push, "http://"+s.people.addr()+"/stripe/webhook")
	}()
	return c, nil
}
