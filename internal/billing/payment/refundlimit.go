package payment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

const (
	// refundPeriod is the time over which refunds are limited. Queries state it too.
	refundPeriod = 30 * 24 * time.Hour
	// refundedPayments is how many payments may be refunded within refundPeriod: Stripe keeps a fixed fee of each.
	refundedPayments = 20
	// DefaultRefundLimit is Config.RefundLimit where nothing else is configured.
	DefaultRefundLimit = 1000 * money.Unit
)

// pastRefunds is what bounds the next refund of an org. Amounts are without tax.
type pastRefunds struct {
	recent   money.Nano // refunded within refundPeriod
	payments int        // that were refunded within refundPeriod
	oldest   time.Time  // refund within refundPeriod, those to others of the circle included
	ever     money.Nano // refunded
	used     money.Nano // paid in, neither refunded nor still the org's
	allowed  money.Nano // by staff, within refundPeriod

	// What other orgs of this org's circle were given back within refundPeriod. So no one multiplies the limit by signing
	// up again.
	sameCards         money.Nano
	sameCardsPayments int
}

// refundRoom returns how much may be refunded now, in whole cents. Stripe keeps its fee of a payment that is refunded,
// and the platform carries it. So an org gets back at most limit within refundPeriod, or as much in its whole life as
// it has used, whichever is more: the platform's share of what was used pays for the fees. The orgs of a circle share
// limit. What staff allow comes on top. A limit of 0 is none.
func refundRoom(limit money.Nano, past pastRefunds) money.Nano {
	if limit == 0 {
		return 100 * MaxTopUp
	}
	room := max(limit+past.allowed-past.recent-past.sameCards, past.used-past.ever, 0)
	return room - room%money.Cent
}

// inReach returns the payments that may be refunded now: those that were refunded within refundPeriod already, and the
// first ones of the others up to refundedPayments. With an allowance of the staff all may.
func inReach(limit money.Nano, past pastRefunds, rows []dbq.RefundableTopupsRow) []dbq.RefundableTopupsRow {
	if limit == 0 || past.allowed > 0 {
		return rows
	}
	fresh := refundedPayments - past.payments - past.sameCardsPayments
	var out []dbq.RefundableTopupsRow
	for _, r := range rows {
		switch {
		case refundableOf(r) == 0:
		case r.Recent:
			out = append(out, r)
		case fresh > 0:
			out, fresh = append(out, r), fresh-1
		}
	}
	return out
}

func (rs *Refunds) history(ctx context.Context, q *dbq.Queries, org id.Org) (pastRefunds, error) {
	if rs.cfg.RefundLimit == 0 {
		return pastRefunds{}, nil
	}
	r, err := q.RefundHistory(ctx, org, rs.cfg.Currency)
	if err != nil {
		return pastRefunds{}, fmt.Errorf("read past refunds of %s: %w", org, err)
	}
	others, err := q.RefundsOfCircle(ctx, rs.cfg.Currency, org)
	if err != nil {
		return pastRefunds{}, fmt.Errorf("read past refunds to the circle of %s: %w", org, err)
	}
	past := pastRefunds{
		recent:            money.Nano(r.Recent),
		payments:          int(r.Payments),
		oldest:            r.Oldest,
		ever:              money.Nano(r.Ever),
		used:              money.Nano(r.Used),
		allowed:           money.Nano(r.Allowed),
		sameCards:         money.Nano(others.Amount),
		sameCardsPayments: int(others.Payments),
	}
	if others.Amount > 0 && others.Oldest.Before(past.oldest) {
		past.oldest = others.Oldest
	}
	return past, nil
}

// overRefundLimit refuses a refund of more than most, which the limit leaves.
func overRefundLimit(cfg Config, past pastRefunds, most money.Nano) *fault.Fault {
	now := "nothing more can be refunded now"
	if most > 0 {
		now = fmt.Sprintf("only %s %s can be refunded now", most.Plain(), cfg.Currency)
	}
	next := ""
	if past.recent+past.sameCards > 0 {
		next = fmt.Sprintf(" More can be refunded on %s.", past.oldest.Add(refundPeriod).UTC().Format("2006-01-02"))
	}
	if past.sameCards > 0 {
		next = " Refunds to other organisations of the same people, or that saved the same card, count too." + next
	}
	return fault.New(fault.QuotaExceeded, "%s: within 30 days, at most %s %s from at most %d payments can be refunded, "+
		"or as much as you have used.%s Write to us if you need the rest sooner.",
		now, inCents(cfg.RefundLimit), cfg.Currency, refundedPayments, next)
}

// Allow lets an org take back amount more than the limit on refunds within the next 30 days, in whole cents. Only
// an admin may, with a reason for the audit log. Faults: Forbidden, Invalid, NotFound.
func (rs *Refunds) Allow(ctx context.Context, who account.Principal, org id.Org, amount money.Nano, reason string,
	once idem.Request) (id.Org, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return org, idem.Outcome{}, err
	}
	return idem.Once(ctx, rs.d, once, func(ctx context.Context, tx *db.Tx) (id.Org, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return org, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log keeps it")
		}
		if amount < money.Cent || amount > 100*MaxTopUp || amount%money.Cent != 0 {
			return org, fault.InvalidField("amount", "must be whole cents, from %s to %s", money.Cent.Plain(),
				(100 * MaxTopUp).Plain())
		}
		found, err := tx.Q.InsertRefundAllowance(ctx, dbq.InsertRefundAllowanceParams{
			OrgID:    org,
			Amount:   int64(amount),
			Currency: rs.cfg.Currency,
			UserID:   who.User,
			Reason:   reason,
		})
		if err != nil {
			return org, fmt.Errorf("allow refund of %s: %w", org, err)
		}
		if found == 0 {
			return org, fault.New(fault.NotFound, "organisation not found")
		}
		return org, audit.Record(ctx, tx, who.Event("billing.refund_allow", org.String(), map[string]any{
			"amount": amount.String(),
			"reason": reason,
		}))
	})
}
