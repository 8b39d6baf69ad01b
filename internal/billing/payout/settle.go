package payout

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// transferSender makes transfers to operators.
type transferSender struct{ *Payouts }

// Send makes a payout's transfer. Under a key that Stripe has forgotten the transfer is looked up, and not made
// again.
func (p transferSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var n stripe.NewTransfer
	if err := json.Unmarshal(row.Params, &n); err != nil {
		return "", nil, err
	}
	ours, err := id.Parse[id.Payout](n.Payout)
	if err != nil {
		return "", nil, err
	}
	var t stripe.Transfer
	if row.Old {
		found, err := client.FindTransfer(ctx, n.Payout)
		if err != nil {
			return "", nil, err
		}
		if found == nil {
			return "", nil, outbox.GivenUp("It was not sent for a day: Stripe could not be reached, or the platform's money " +
				"there had not arrived.")
		}
		t = *found
	} else if err := p.refuseUnknown(ctx, client, ours, n.Account); err != nil {
		return "", nil, err
	} else if err := p.awaitFunds(ctx, client, ours, n); err != nil {
		return "", nil, err
	} else if t, err = client.CreateTransfer(ctx, row.Key, n); err != nil {
		return "", nil, err
	}
	return t.ID, func(ctx context.Context, tx *db.Tx) error { return p.settle(ctx, tx, ours, t) }, nil
}

// settle books the state of a payout's transfer at Stripe, any number of times and in any order.
func (p *Payouts) settle(ctx context.Context, tx *db.Tx, ours id.Payout, t stripe.Transfer) error {
	r, err := tx.Q.PayoutForUpdate(ctx, ours)
	if err != nil {
		return fmt.Errorf("lock payout %s: %w", ours, err)
	}
	if t.Cents != int64(r.Amount/money.Cent) || t.Currency != r.Currency || t.Account != r.StripeAccount {
		// A person made it by hand. The ledger does not know it, so the reconciliation sets it aside and alerts.
		p.log.ErrorContext(ctx, "a transfer is not the payout it names", "payout", ours, "transfer", t.ID, "cents", t.Cents,
			"currency", t.Currency, "account", t.Account)
		return nil
	}
	if r.StripeTransfer != nil && *r.StripeTransfer != t.ID {
		p.log.ErrorContext(ctx, "a payout has two transfers", "payout", ours, "transfer", *r.StripeTransfer, "other", t.ID)
		return nil
	}
	if err := tx.Q.ClearPayoutFailures(ctx, r.OrgID); err != nil { // before the ledger is locked, as everywhere
		return fmt.Errorf("clear failures of payout %s: %w", ours, err)
	}
	clearing, payable, pending := ledger.StripeClearing(r.Currency), ledger.HostPayable(r.OrgID, r.Currency),
		ledger.HostPending(r.OrgID, r.Currency)
	books, err := ledger.Lock(ctx, tx, clearing, payable, pending, ledger.Transfers(r.Currency))
	if err != nil {
		return err
	}
	if State(r.State) != Paid {
		from := ledger.Transfers(r.Currency)
		if State(r.State) == Failed {
			from = pending // it returned to payable, and may have been paid again since: pending may fall below zero
			p.log.ErrorContext(ctx, "a payout that was given up was made after all", "payout", ours, "transfer", t.ID)
		}
		if _, err := books.Post(ctx, ledger.Entry{
			Kind:      "payout_paid",
			Key:       "transfer:" + t.ID,
			Ref:       ours.String(),
			Memo:      "in your account at Stripe",
			Transfers: []ledger.Transfer{{Debit: from, Credit: clearing, Amount: r.Amount}},
		}); err != nil {
			return err
		}
		if err := tx.Q.SettlePayout(ctx, dbq.SettlePayoutParams{
			State:          string(Paid),
			StripeTransfer: &t.ID,
			ID:             ours,
		}); err != nil {
			return fmt.Errorf("settle payout %s: %w", ours, err)
		}
		if err := p.notify(ctx, tx, r, notify.Info, fmt.Sprintf("%s %s were sent to you", r.Amount, r.Currency),
			"The money is in your account at Stripe, which pays it out to your bank."); err != nil {
			return err
		}
	}
	for _, x := range t.Reversals {
		if err := p.bookReversal(ctx, tx, books, r, x); err != nil {
			return err
		}
	}
	return nil
}

// bookReversal books once what came back of a payout: it is payable again.
func (p *Payouts) bookReversal(ctx context.Context, tx *db.Tx, books *ledger.Locked, r dbq.Payout,
	x stripe.Reversal) error {
	amount := money.Nano(x.Cents) * money.Cent
	n, err := tx.Q.InsertPayoutReversal(ctx, x.ID, r.ID, amount)
	if err != nil || n == 0 {
		return err
	}
	if _, err := books.Post(ctx, ledger.Entry{
		Kind: "payout_reversed",
		Key:  "transfer_refund:" + x.ID,
		Ref:  r.ID.String(),
		Memo: "taken back from your account at Stripe",
		Transfers: []ledger.Transfer{{
			Debit:  ledger.StripeClearing(r.Currency),
			Credit: ledger.HostPayable(r.OrgID, r.Currency),
			Amount: amount,
		}},
	}); err != nil {
		return err
	}
	if err := tx.Q.AddPayoutReversed(ctx, amount, r.ID); err != nil {
		return fmt.Errorf("add reversal to payout %s: %w", r.ID, err)
	}
	if err := tx.Q.ClosePayoutReversal(ctx, r.ID, x.Reversal); err != nil {
		return fmt.Errorf("close reversal of payout %s: %w", r.ID, err)
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org:      r.OrgID,
		Key:      "payout_reversal:" + x.ID,
		Severity: notify.Warn,
		Object:   r.OrgID.String(),
		Title:    fmt.Sprintf("%s %s of a payout were taken back", amount.Plain(), r.Currency),
		Body:     "The money left your account at Stripe and is payable again here.",
	})
	return err
}

// Refused returns the money of a payout that Stripe refused: it is payable again, and is tried again later.
func (p transferSender) Refused(ctx context.Context, tx *db.Tx, row outbox.Row, why *stripe.Error) error {
	ours, err := id.Parse[id.Payout](row.Ref)
	if err != nil {
		return err
	}
	r, err := tx.Q.PayoutForUpdate(ctx, ours)
	if err != nil {
		return fmt.Errorf("lock payout %s: %w", ours, err)
	}
	if State(r.State) != Pending {
		return nil
	}
	a, err := tx.Q.PayoutAccountForUpdate(ctx, r.OrgID)
	if err != nil {
		return fmt.Errorf("lock payout account of %s: %w", r.OrgID, err)
	}
	if _, err := ledger.Post(ctx, tx, ledger.Entry{
		Kind: "payout_failed",
		Key:  "payout:" + row.Ref + ":returned",
		Ref:  row.Ref,
		Memo: "the payout did not work; it is payable again",
		Transfers: []ledger.Transfer{{
			Debit:  ledger.Transfers(r.Currency),
			Credit: ledger.HostPayable(r.OrgID, r.Currency),
			Amount: r.Amount,
		}},
	}); err != nil {
		return err
	}
	message, err := p.refusal(ctx, tx, r, a, why)
	if err != nil {
		return err
	}
	if err := tx.Q.SettlePayout(ctx, dbq.SettlePayoutParams{
		State:   string(Failed),
		Failure: message,
		ID:      ours,
	}); err != nil {
		return fmt.Errorf("settle payout %s: %w", ours, err)
	}
	if err := tx.Q.SetPayoutFailures(ctx, a.Failures+1, retryAfter(int(a.Failures)+1).Seconds(), r.OrgID); err != nil {
		return fmt.Errorf("set failures of %s: %w", r.OrgID, err)
	}
	return p.notify(ctx, tx, r, notify.Warn, fmt.Sprintf("A payout of %s %s did not work", r.Amount, r.Currency),
		message+" The amount is payable again and is retried automatically.")
}

// refusal returns why Stripe refused a payout, in a sentence for its operator, and updates the operator's account: it
// may be disconnected, or refused too often.
func (p *Payouts) refusal(ctx context.Context, tx *db.Tx, r dbq.Payout, a dbq.PayoutAccount,
	why *stripe.Error) (string, error) {
	switch why.Code {
	case stripe.CodeNoBalance: // cards take days to clear
		return "The platform's money at Stripe has not arrived there yet.", nil
	case stripe.CodeAccountInvalid:
		if err := tx.Q.SetPayoutAccountState(ctx, dbq.SetPayoutAccountStateParams{
			Submitted: a.Submitted,
			Due:       []string{},
			Checking:  []string{},
			Disabled:  DisabledDisconnected,
			OrgID:     r.OrgID,
		}); err != nil {
			return "", fmt.Errorf("disable payout account of %s: %w", r.OrgID, err)
		}
		return "Your account at Stripe is closed, or not connected to the platform any more.", nil
	case "insufficient_capabilities_for_transfer":
		return "Your account at Stripe cannot receive money now: see what is missing.", nil
	case outbox.CodeGivenUp:
		return why.Message, nil
	}
	if int(a.Failures)+1 >= maxRefusals { // Stripe gives the same reason each time: an admin decides
		if err := p.stopRefused(ctx, tx, r, why); err != nil {
			return "", err
		}
	}
	return "Stripe did not take it.", nil
}

// maxRefusals is how often Stripe may refuse transfers to an account, for a reason that waiting does not fix, before
// they stop.
const maxRefusals = 3

// stopRefused stops payouts to an operator to whom Stripe does not let the platform send money. Admins are notified;
// they resume payouts when the cause is removed.
func (p *Payouts) stopRefused(ctx context.Context, tx *db.Tx, r dbq.Payout, why *stripe.Error) error {
	n, err := tx.Q.SetPayoutStopped(ctx, "Stripe refuses transfers to this account: "+why.Message, r.OrgID)
	if err != nil || n == 0 {
		return err
	}
	return notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      "payout_refused:" + r.ID.String(),
		Severity: notify.Bad,
		Object:   r.OrgID.String(),
		Title:    "Stripe refuses payouts to an operator",
		Body: fmt.Sprintf("Stripe refused %d transfers to the operator's account: %s. Payouts to them are stopped until "+
			"you resume them.", maxRefusals, why.Message),
	})
}

func (p *Payouts) notify(ctx context.Context, tx *db.Tx, r dbq.Payout, s notify.Severity, title, body string) error {
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      r.OrgID,
		Key:      "payout:" + r.ID.String() + ":" + string(s),
		Severity: s,
		Object:   r.OrgID.String(),
		Title:    title,
		Body:     body,
	})
	return err
}

// refreshTransfer reads a transfer from Stripe and books its state.
func (p *Payouts) refreshTransfer(ctx context.Context, object string) (note string, err error) {
	t, err := p.out.Client().Transfer(ctx, object)
	if e := stripe.As(err); e != nil && e.Outcome == stripe.Missing {
		return "Stripe does not know it", nil
	}
	if err != nil {
		return "", err
	}
	ours, err := id.Parse[id.Payout](t.Payout)
	if err != nil {
		return "not a payout of this platform", nil
	}
	err = p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return p.settle(ctx, tx, ours, t) })
	if db.NoRows(err) {
		return "not a payout of this platform", nil
	}
	return "", err
}
