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
func (ds *Disputes) refreshFraudWarning(ctx context.Context, object string) (note string, err error) {
	w, err := ds.stripe.FraudWarning(ctx, object)
	if err != nil {
		return ifMissing(err)
	}
	if !w.Actionable {
		return "the payment is disputed or refunded already", nil
	}
	t, err := ds.d.Q.TopupOfPayment(ctx, &w.Payment)
	if db.NoRows(err) {
		return notOurs, nil
	}
	if err != nil {
		return "", fmt.Errorf("read top-up of %s: %w", w.Payment, err)
	}
	return "", ds.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := stopAuto(ctx, tx, t.OrgID, "The card's bank reports that a payment may be fraudulent."); err != nil {
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
