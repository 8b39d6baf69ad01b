package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/notify"
)

// refreshFraudWarning acts on a card issuer's early warning about a payment: no more credit is added automatically with
// the org's card, and admins are notified once, because a refund before the dispute saves its fee. They decide whether
// to refund: what the payment bought may be used up.
func (p *Payments) refreshFraudWarning(ctx context.Context, object string) (note string, err error) {
	w, err := p.stripe.FraudWarning(ctx, object)
	if err != nil {
		return ifMissing(err)
	}
	if !w.Actionable {
		return "the payment is disputed or refunded already", nil
	}
	t, err := p.d.Q.TopupOfPayment(ctx, &w.Payment)
	if db.NoRows(err) {
		return notOurs, nil
	}
	if err != nil {
		return "", fmt.Errorf("read top-up of %s: %w", w.Payment, err)
	}
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := p.stopAuto(ctx, tx, t.OrgID, "The card's bank reports that a payment may be fraudulent."); err != nil {
			return err
		}
		return notify.AddForAdmins(ctx, tx, notify.Notice{
			Key:      "fraud_warning:" + w.ID,
			Severity: notify.Bad,
			Object:   t.OrgID.String(),
			Title:    "A card's bank reports that a payment may be fraudulent",
			Body: fmt.Sprintf("Payment %s of %s %s (top-up %s) of %s: %s. A dispute often follows, and a refund before it "+
				"saves the dispute's fee. Look at the organisation, and refund the payment at Stripe if nothing explains it.",
				w.Payment, (t.Amount + t.Tax).Plain(), t.Currency, t.ID, t.OrgID, strings.ReplaceAll(w.Type, "_", " ")),
		})
	})
}

// meterErrors notifies admins, once a day and meter, that Stripe refused reports of usage which it had accepted first:
// meter events are validated later. Bills are correct nevertheless, because each invoice is made equal to the ledger;
// what customers see of their usage at Stripe is not.
func (p *Payments) meterErrors(ctx context.Context, meter string) (note string, err error) {
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		return notify.AddForAdmins(ctx, tx, notify.Notice{
			Key:      "meter_errors:" + meter + ":" + now.Format("2006-01-02"),
			Severity: notify.Warn,
			Title:    "Stripe rejected reports of usage",
			Body: fmt.Sprintf("Stripe accepted reports of usage for the meter %s and rejected them later. Invoices are "+
				"correct nevertheless, because each is made equal to the ledger. Customers see too little usage at Stripe. "+
				"The meter's page in Stripe's dashboard lists the errors.", meter),
		})
	})
}
