package payout

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// setAside opens a review for every renter who is linked with the operator now and whose earnings are not payable yet,
// and for every renter who lost a dispute, and returns how much of what was earned until the cutoff is in review.
// unpaid is what is pending, payable, and in the bond. The caller holds the lock on host_pending, under which all of a
// review's amounts change.
func setAside(ctx context.Context, tx *db.Tx, org id.Org, currency string, cutoff time.Time,
	unpaid money.Nano) (money.Nano, error) {
	matured, err := tx.Q.MaturedThrough(ctx, org, currency)
	if err != nil && !db.NoRows(err) {
		return 0, fmt.Errorf("read matured earnings of %s: %w", org, err)
	}
	linked, err := tx.Q.LinkedRenters(ctx, org, currency, matured)
	if err != nil {
		return 0, fmt.Errorf("read renters linked with %s: %w", org, err)
	}
	for _, l := range linked {
		if err := tx.Q.OpenPayoutReview(ctx, dbq.OpenPayoutReviewParams{
			ID:          id.New[id.PayoutReview](),
			HostOrgID:   org,
			RenterOrgID: l.RenterOrgID,
			Currency:    currency,
			Reasons:     l.Reasons,
			Matured:     matured,
		}); err != nil {
			return 0, fmt.Errorf("insert review of %s for %s: %w", l.RenterOrgID, org, err)
		}
	}
	if err := openLost(ctx, tx, org, currency, matured, unpaid); err != nil {
		return 0, err
	}
	if err := tx.Q.HoldForReview(ctx, cutoff, org, currency); err != nil {
		return 0, fmt.Errorf("hold for review of %s: %w", org, err)
	}
	return heldForReview(ctx, tx.Q, org, currency)
}

func heldForReview(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (money.Nano, error) {
	n, err := q.HeldForReview(ctx, org, currency)
	if err != nil {
		return 0, fmt.Errorf("read what is in review of %s: %w", org, err)
	}
	return money.Nano(n), nil
}

// Review is an operator and a renter who are linked. It stays when the link goes: who ends it in time would be paid
// otherwise.
type Review = client.PayoutReview

func reviewOf(r dbq.PayoutReview) Review {
	return Review{
		ID:        r.ID,
		Operator:  r.HostOrgID,
		Renter:    r.RenterOrgID,
		Reasons:   r.Reasons,
		InReview:  r.Held,
		Released:  r.Released,
		Refused:   r.Refused,
		Currency:  r.Currency,
		Decision:  r.Decision,
		DecidedAt: r.DecidedAt,
		CreatedAt: r.CreatedAt,
		Limit:     r.HeldLimit,
		Advice:    Advice(r.Advice),
	}
}

// Reviews lists them, newest first, those before the given one (zero: from the newest), at most limit. Only an admin
// may; fault: Forbidden.
func (p *Payouts) Reviews(ctx context.Context, who account.Principal, before id.PayoutReview,
	limit int) ([]Review, error) {
	return p.ReviewsOf(ctx, who, ReviewFilter{}, before, limit)
}

// ReviewFilter is which reviews to list; zero fields match everything.
type ReviewFilter struct {
	Org     id.Org // as operator or as renter
	Waiting bool   // only those with something to decide on
}

// ReviewsOf is Reviews of those that match.
func (p *Payouts) ReviewsOf(ctx context.Context, who account.Principal, f ReviewFilter, before id.PayoutReview,
	limit int) ([]Review, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := p.d.Q.FindPayoutReviews(ctx, dbq.FindPayoutReviewsParams{
		Before:  pgtype.UUID{Bytes: before.UUID(), Valid: true},
		Org:     pgtype.UUID{Bytes: f.Org.UUID(), Valid: !f.Org.IsZero()},
		Waiting: f.Waiting,
		MaxRows: int32(limit),
	})
	if err != nil {
		return nil, fmt.Errorf("read reviews: %w", err)
	}
	out := make([]Review, len(rows))
	for i, r := range rows {
		out[i] = reviewOf(r)
	}
	return out, nil
}

// ApproveReview lets what is in review now become payable as usual; what the same renter pays later is reviewed again.
// Only an admin may, with a reason for the audit log. Faults: Forbidden, NotFound, Invalid, Conflict (nothing is in
// review).
func (p *Payouts) ApproveReview(ctx context.Context, who account.Principal, review id.PayoutReview, reason string,
	once idem.Request) (Review, idem.Outcome, error) {
	return p.decideReview(ctx, who, review, reason, once, "payout.review_release",
		func(ctx context.Context, tx *db.Tx, _ *ledger.Locked, r dbq.PayoutReview, reason string) error {
			return tx.Q.ReleasePayoutReview(ctx, reason, r.ID)
		})
}

// RefuseReview keeps what is in review now from the operator for good: it moves to earnings_withheld. What pending and
// payable earnings do not cover of it comes out of the bond, as far as that is not reserved for leases; Mature takes
// the rest when it is released. The operator reads the reason. Only an admin may. Faults as ApproveReview.
func (p *Payouts) RefuseReview(ctx context.Context, who account.Principal, review id.PayoutReview, reason string,
	once idem.Request) (Review, idem.Outcome, error) {
	return p.decideReview(ctx, who, review, reason, once, "payout.review_refuse",
		func(ctx context.Context, tx *db.Tx, books *ledger.Locked, r dbq.PayoutReview, reason string) error {
			sum := r.Refused + r.Held
			key := fmt.Sprintf("payout_refuse:%s:%d", r.ID, int64(sum))
			if _, err := books.Post(ctx, ledger.Entry{
				Kind: "payout_refuse",
				Key:  key,
				Ref:  r.HostOrgID.String(),
				Memo: "refused by a review of the renter who paid it",
				Transfers: []ledger.Transfer{{
					Debit:  ledger.HostPending(r.HostOrgID, r.Currency),
					Credit: ledger.Withheld(r.Currency),
					Amount: r.Held,
				}},
			}); err != nil {
				return err
			}
			if err := bond.Answer(ctx, tx, books, r.HostOrgID, r.Currency); err != nil {
				return err
			}
			if _, err := notify.Add(ctx, tx, notify.Notice{
				Org:      r.HostOrgID,
				Key:      key,
				Severity: notify.Bad,
				Object:   r.HostOrgID.String(),
				Title:    fmt.Sprintf("%s %s of your earnings were refused", r.Held.Plain(), r.Currency),
				Body:     reason,
			}); err != nil {
				return err
			}
			return tx.Q.RefusePayoutReview(ctx, reason, r.ID)
		})
}

type reviewAct func(ctx context.Context, tx *db.Tx, books *ledger.Locked, r dbq.PayoutReview, reason string) error

// decideReview lets act decide what is in review now, with what it needs locked and counted.
func (p *Payouts) decideReview(ctx context.Context, who account.Principal, review id.PayoutReview, reason string,
	once idem.Request, action string, act reviewAct) (Review, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return Review{}, idem.Outcome{}, err
	}
	reason, err := checkReason(reason)
	if err != nil {
		return Review{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (Review, error) {
		r, books, err := lockReview(ctx, tx, review)
		if err != nil {
			return Review{}, err
		}
		amount := r.Held
		if err := act(ctx, tx, books, r, reason); err != nil {
			return Review{}, fmt.Errorf("decide review %s: %w", review, err)
		}
		if r, err = tx.Q.PayoutReview(ctx, review); err != nil {
			return Review{}, fmt.Errorf("read review %s: %w", review, err)
		}
		return reviewOf(r), audit.Record(ctx, tx, who.Event(action, review.String(), map[string]any{
			"amount": amount.String(), "reason": reason, "org": r.HostOrgID.String(), "renter": r.RenterOrgID.String()}))
	})
}

// lockReview locks the accounts of a review, under which its amounts change, and counts again what is in it: something
// may have been given back to the renter. Faults: NotFound, Conflict (nothing is in review).
func lockReview(ctx context.Context, tx *db.Tx, review id.PayoutReview) (dbq.PayoutReview, *ledger.Locked, error) {
	r, err := tx.Q.PayoutReview(ctx, review)
	if db.NoRows(err) {
		return r, nil, fault.New(fault.NotFound, "review not found")
	}
	if err != nil {
		return r, nil, fmt.Errorf("read review %s: %w", review, err)
	}
	accounts, err := bond.Account(ctx, tx.Q, r.HostOrgID, r.Currency)
	if err != nil {
		return r, nil, err
	}
	books, err := ledger.Lock(ctx, tx, append(accounts, ledger.HostPending(r.HostOrgID, r.Currency),
		ledger.HostPayable(r.HostOrgID, r.Currency), ledger.Withheld(r.Currency))...)
	if err != nil {
		return r, nil, err
	}
	if r, err = tx.Q.PayoutReview(ctx, review); err != nil { // as it is under the lock
		return r, nil, fmt.Errorf("read review %s: %w", review, err)
	}
	if err := tx.Q.HoldForReview(ctx, r.Through, r.HostOrgID, r.Currency); err != nil {
		return r, nil, fmt.Errorf("count review %s: %w", review, err)
	}
	if r, err = tx.Q.PayoutReview(ctx, review); err != nil {
		return r, nil, fmt.Errorf("read review %s: %w", review, err)
	}
	if r.Held == 0 {
		return r, nil, fault.New(fault.Conflict, "nothing of it is in review now")
	}
	return r, books, nil
}
