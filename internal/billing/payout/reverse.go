package payout

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// ReversalRequest is what to take back of a payout.
type ReversalRequest struct {
	Payout id.Payout
	Org    id.Org     // whose payout it has to be; zero: any org's
	Amount money.Nano // whole cents; 0: all that is left of the payout
	Reason string     // 1 to 500 bytes; the operator reads it
}

// Reverse takes a payout back, in part or whole. What comes back is payable again, so payouts to the operator are
// stopped with the reason until an admin resumes them (ChangeOperator). Only an admin may. Stripe does it in a moment
// and the payout shows it then; what Stripe refuses stays on the payout with its reason, and may be requested again.
// Faults: Forbidden, NotFound, Invalid, Conflict (not paid; Stripe has yet to answer the request before).
func (p *Payouts) Reverse(ctx context.Context, who account.Principal, r ReversalRequest,
	once idem.Request) (Payout, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return Payout{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (Payout, error) {
		return p.reverse(ctx, tx, who, r)
	})
}

func (p *Payouts) reverse(ctx context.Context, tx *db.Tx, who account.Principal, in ReversalRequest) (Payout, error) {
	reason, err := checkReason(in.Reason)
	if err != nil {
		return Payout{}, err
	}
	r, amount, err := lockReversible(ctx, tx, in)
	if err != nil {
		return Payout{}, err
	}
	if _, err := tx.Q.SetPayoutStopped(ctx, reason, r.OrgID); err != nil {
		return Payout{}, fmt.Errorf("stop payouts to %s: %w", r.OrgID, err)
	}
	name := id.New[id.Outbox]().String()
	if err := tx.Q.AskPayoutReversal(ctx, name, amount, in.Payout); err != nil {
		return Payout{}, fmt.Errorf("reverse payout %s: %w", in.Payout, err)
	}
	r.ReversalState, r.Reversal, r.ReversalAmount, r.ReversalFailure = string(ReversalRequested), name, amount, ""
	send, err := outbox.Add(ctx, tx, kindReversal, in.Payout.String(), "reversal:"+name, stripe.NewReversal{
		Reversal: name,
		Transfer: *r.StripeTransfer,
		Cents:    int64(amount / money.Cent),
	})
	if err != nil {
		return Payout{}, err
	}
	tx.AfterCommit(func() { p.out.SendNow(ctx, send) })
	if _, err := notify.Add(ctx, tx, notify.Notice{
		Org:      r.OrgID,
		Key:      "payout_stopped:" + name,
		Severity: notify.Bad,
		Object:   r.OrgID.String(),
		Title:    "A payout is taken back, and payouts are stopped",
		Body:     reason,
	}); err != nil {
		return Payout{}, err
	}
	return viewOf(r), audit.Record(ctx, tx, who.Event("payout.reverse", in.Payout.String(), map[string]any{
		"amount": amount.String(),
		"reason": reason,
		"org":    r.OrgID.String(),
	}))
}

// lockReversible locks a payout that can be taken back now, and returns how much of it is requested. Faults: NotFound,
// Conflict, Invalid.
func lockReversible(ctx context.Context, tx *db.Tx, in ReversalRequest) (dbq.Payout, money.Nano, error) {
	r, err := tx.Q.PayoutForUpdate(ctx, in.Payout)
	if db.NoRows(err) || err == nil && !in.Org.IsZero() && r.OrgID != in.Org {
		return r, 0, fault.New(fault.NotFound, "payout not found")
	}
	if err != nil {
		return r, 0, fmt.Errorf("lock payout %s: %w", in.Payout, err)
	}
	if State(r.State) != Paid || r.StripeTransfer == nil {
		return r, 0, fault.New(fault.Conflict, "only a payout that was paid is taken back; this one is %s", r.State)
	}
	if open, err := tx.Q.PayoutReversalOpen(ctx, in.Payout.String()); err != nil {
		return r, 0, fmt.Errorf("read reversal of payout %s: %w", in.Payout, err)
	} else if open {
		return r, 0, fault.New(fault.Conflict, "it is being taken back already; Stripe has yet to answer")
	}
	left, amount := r.Amount-r.Reversed, in.Amount
	if amount == 0 {
		amount = left
	}
	if amount < money.Cent || amount%money.Cent != 0 || amount > left {
		return r, 0, fault.InvalidField("amount", "must be whole cents, at least one, and at most %s, what is left of "+
			"the payout", left.Plain())
	}
	return r, amount, nil
}

// checkReason returns a reason that both sides may read.
func checkReason(reason string) (string, error) {
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
		return "", fault.InvalidField("reason", "must give the reason in at most 500 bytes; the operator reads it")
	}
	return reason, nil
}

func (p *Payouts) stop(ctx context.Context, tx *db.Tx, who account.Principal, org id.Org, stop bool,
	reason string) error {
	reason, err := checkReason(reason)
	if err != nil {
		return err
	}
	if _, err := tx.Q.PayoutAccountForUpdate(ctx, org); db.NoRows(err) {
		return fault.New(fault.NotFound, "the organisation has no payout account")
	} else if err != nil {
		return fmt.Errorf("lock account of %s: %w", org, err)
	}
	why, title := reason, "Payouts to you are stopped"
	if !stop {
		why, title = "", "Payouts to you continue"
	}
	return setStopped(ctx, tx, org, why, title, reason, who.Event("payout.stop", org.String(),
		map[string]any{"stopped": stop, "reason": reason}))
}

// setStopped stops payouts of an organisation, or with an empty why lets them go on, notifies it and records the act.
// It does nothing if that is so already, or if there is no payout account.
func setStopped(ctx context.Context, tx *db.Tx, org id.Org, why, title, body string, act audit.Event) error {
	n, err := tx.Q.SetPayoutStopped(ctx, why, org)
	if err != nil || n == 0 {
		return err
	}
	if _, err := notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "payout_stop:" + id.New[id.Payout]().String(),
		Severity: notify.Warn,
		Object:   org.String(),
		Title:    title,
		Body:     body,
	}); err != nil {
		return err
	}
	return audit.Record(ctx, tx, act)
}

// reversalSender takes parts of transfers back.
type reversalSender struct{ *Payouts }

// Send takes a part of a transfer back. Under a key that Stripe has forgotten, what came back already is read,
// and nothing is taken again.
func (p reversalSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var n stripe.NewReversal
	if err := json.Unmarshal(row.Params, &n); err != nil {
		return "", nil, err
	}
	ours, err := id.Parse[id.Payout](row.Ref)
	if err != nil {
		return "", nil, err
	}
	if !row.Old {
		if _, err := client.ReverseTransfer(ctx, row.Key, n); err != nil {
			return "", nil, err
		}
	}
	t, err := client.Transfer(ctx, n.Transfer)
	if err != nil {
		return "", nil, err
	}
	for _, x := range t.Reversals {
		if x.Reversal == n.Reversal {
			return x.ID, func(ctx context.Context, tx *db.Tx) error { return p.settle(ctx, tx, ours, t) }, nil
		}
	}
	return "", nil, outbox.GivenUp("Stripe could not be reached for a day.")
}

// Refused stores Stripe's reason with the payout, and notifies the operator and admins: the money stays where it
// is, and payouts to the operator stay stopped.
func (p reversalSender) Refused(ctx context.Context, tx *db.Tx, row outbox.Row, why *stripe.Error) error {
	p.log.ErrorContext(ctx, "a payout was not taken back", "payout", row.Ref, "error", why)
	var n stripe.NewReversal
	if err := json.Unmarshal(row.Params, &n); err != nil {
		return err
	}
	ours, err := id.Parse[id.Payout](row.Ref)
	if err != nil {
		return err
	}
	r, err := tx.Q.PayoutForUpdate(ctx, ours)
	if err != nil {
		return fmt.Errorf("lock payout %s: %w", ours, err)
	}
	amount, reason := money.Nano(n.Cents)*money.Cent, cmp.Or(why.Message, "Stripe gives no reason ("+why.Code+").")
	if err := tx.Q.RefusePayoutReversal(ctx, dbq.RefusePayoutReversalParams{
		Reversal: n.Reversal,
		Amount:   amount,
		Failure:  reason,
		ID:       ours,
	}); err != nil {
		return fmt.Errorf("refuse reversal of payout %s: %w", ours, err)
	}
	if _, err := notify.Add(ctx, tx, notify.Notice{
		Org:      r.OrgID,
		Key:      "payout_" + row.Key,
		Severity: notify.Warn,
		Object:   r.OrgID.String(),
		Title:    fmt.Sprintf("%s %s of a payout were not taken back", amount.Plain(), r.Currency),
		Body: "Stripe refuses it: " + reason + " No money moved. Payouts to you stay stopped until the platform resumes " +
			"them.",
	}); err != nil {
		return err
	}
	return notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      "payout_" + row.Key,
		Severity: notify.Bad,
		Object:   row.Ref,
		Title:    "A payout was not taken back",
		Body: "Stripe refused to take the money back: " + reason +
			" No money moved. Payouts to the operator stay stopped until you resume them. You can try again from the " +
			"operator's page.",
	})
}

// StopTakenOver stops payouts of an organisation whose owner proved their e-mail address by setting a new password:
// someone else may have signed up with that address and set up the payout account. It does nothing if there is no
// payout account. An admin lets payouts go on (ChangeOperator) once the owner has confirmed where they go.
func (p *Payouts) StopTakenOver(ctx context.Context, tx *db.Tx, org id.Org) error {
	const why = "The e-mail address of this organisation was verified after the payout account was set up. " +
		"Confirm to the platform whether the payout account is yours."
	return setStopped(ctx, tx, org, why, "Payouts to you are stopped", why, audit.Event{
		Org:    org,
		Action: "payout.stop",
		Object: org.String(),
		Detail: map[string]any{"stopped": true, "reason": why},
	})
}
