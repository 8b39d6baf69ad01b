package payment

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// topupSender is what the senders of top-ups share.
type topupSender struct{ *TopUps }

// Refused ends the top-up: it failed.
func (p topupSender) Refused(ctx context.Context, tx *db.Tx, row outbox.Row, why *stripe.Error) error {
	message := p.refusal(ctx, row, why)
	t, err := id.Parse[id.TopUp](row.Ref)
	if err != nil {
		return err
	}
	return failTopUp(ctx, tx, t, Failed, message, why.Payment)
}

// subject reads a row's parameters, and returns the top-up that it is for and its org's customer. The error is
// errNoCustomer if there is no customer yet.
func (p topupSender) subject(ctx context.Context, row outbox.Row,
	params any) (t id.TopUp, customer string, err error) {
	if err := json.Unmarshal(row.Params, params); err != nil {
		return t, "", err
	}
	if t, err = id.Parse[id.TopUp](row.Ref); err != nil {
		return t, "", err
	}
	topup, err := p.d.Q.Topup(ctx, t)
	if err != nil {
		return t, "", fmt.Errorf("read top-up %s: %w", t, err)
	}
	customer, _, err = p.customers.of(ctx, topup.OrgID)
	return t, customer, err
}

// paymentSender charges a saved card for a top-up.
type paymentSender struct{ topupSender }

// Send charges the card.
func (p paymentSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var n stripe.NewPayment
	t, customer, err := p.subject(ctx, row, &n)
	if err != nil {
		return "", nil, err
	}
	n.Customer = customer
	if row.Attempts == 1 { // later it may have been paid already
		switch blocked, err := p.d.Q.MethodIsBlocked(ctx, n.Method); {
		case err != nil:
			return "", nil, fmt.Errorf("look for the card of top-up %s: %w", t, err)
		case blocked:
			return "", nil, &stripe.Error{Outcome: stripe.Declined, Code: "card_blocked",
				Message: "This card cannot be used here: its owner took an earlier payment back. Use another card."}
		}
	}
	var pay stripe.Payment
	if row.Old {
		pay, err = findPayment(ctx, client, customer, n.TopUp)
	} else {
		pay, err = client.CreatePayment(ctx, row.Key, n)
	}
	return pay.ID, func(ctx context.Context, tx *db.Tx) error { return p.settle(ctx, tx, t, pay, true) }, err
}

// findPayment returns the payment that a row with an old key may have made. If there is none, the row is given up: a
// day later the payer no longer expects a charge.
func findPayment(ctx context.Context, client *stripe.Client, customer, topup string) (stripe.Payment, error) {
	found, err := client.FindPayment(ctx, customer, topup)
	if err != nil {
		return stripe.Payment{}, err
	}
	if found == nil {
		return stripe.Payment{}, outbox.GivenUp("The payment service could not be reached for a day. Nothing was charged.")
	}
	return *found, nil
}

// checkoutSender opens the page on which a payer enters a card for a top-up.
type checkoutSender struct{ topupSender }

// Send opens the page.
func (p checkoutSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var n stripe.NewCheckout
	t, customer, err := p.subject(ctx, row, &n)
	if err != nil {
		return "", nil, err
	}
	if row.Old {
		return "", nil, outbox.GivenUp("The payment service could not be reached for a day.")
	}
	n.Customer = customer
	page, err := client.CreateCheckout(ctx, row.Key, n)
	return page.ID, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.SetTopupCheckout(ctx, t, page.URL); err != nil {
			return fmt.Errorf("set checkout page of top-up %s: %w", t, err)
		}
		return nil
	}, err
}

// cancelParams are the frozen parameters of a cancellation.
type cancelParams struct {
	Payment string `json:"payment"`
}

// giveUp queues the cancellation of a payment whose payer did not answer their bank. Only Stripe knows whether they
// have answered since.
func (ts *TopUps) giveUp(ctx context.Context, t dbq.Topup) error {
	if t.PaymentIntentID == nil {
		return nil
	}
	return ts.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := outbox.Add(ctx, tx, kindCancel, t.ID.String(), "cancel:"+*t.PaymentIntentID,
			cancelParams{*t.PaymentIntentID})
		return err
	})
}

// cancelSender cancels payments.
type cancelSender struct{ *TopUps }

// Send cancels a payment and books what became of it: it may have succeeded before.
func (p cancelSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var c cancelParams
	if err := json.Unmarshal(row.Params, &c); err != nil {
		return "", nil, err
	}
	t, err := id.Parse[id.TopUp](row.Ref)
	if err != nil {
		return "", nil, err
	}
	pay, err := client.CancelPayment(ctx, row.Key, c.Payment)
	if pay.Status == stripe.Canceled && pay.Failure == "" {
		pay.Failure = "Your bank asked for a confirmation and did not get it within a day. Nothing was charged."
	}
	return pay.ID, func(ctx context.Context, tx *db.Tx) error { return p.settle(ctx, tx, t, pay, true) }, err
}

// Refused leaves the top-up pending: Poll reads its state.
func (p cancelSender) Refused(ctx context.Context, _ *db.Tx, row outbox.Row, why *stripe.Error) error {
	p.refusal(ctx, row, why)
	return nil
}
