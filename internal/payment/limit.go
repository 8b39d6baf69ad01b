package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Standing is how far an org may pay in. Until an owner's e-mail address and a card are verified, what it adds is limited:
// stolen cards are tried on new accounts. What can be spent is what was paid in, so the limit holds for that too.
type Standing struct {
	EmailVerified bool        `json:"email_verified"` // of an owner
	CardVerified  bool        `json:"card_verified"`  // a saved one, which its bank accepted
	Limit         *money.Nano `json:"limit"`          // what may be added in all; nil: any amount
	Added         money.Nano  `json:"added"`          // without tax; payments under way included
	Left          *money.Nano `json:"left"`
}

// Standing is the org's.
func (p *Payments) Standing(ctx context.Context, org id.Org) (Standing, error) {
	return p.standing(ctx, p.d.Q, org)
}

func (p *Payments) standing(ctx context.Context, q *dbq.Queries, org id.Org) (Standing, error) {
	r, err := q.PayerStanding(ctx, pgtype.UUID{Bytes: org.UUID(), Valid: true})
	if err != nil {
		return Standing{}, fmt.Errorf("standing of %s: %w", org, err)
	}
	s := Standing{EmailVerified: r.EmailVerified, CardVerified: r.CardVerified, Added: money.Nano(r.Added)}
	if p.cfg.UnverifiedLimit > 0 && !(s.EmailVerified && s.CardVerified) {
		limit, left := p.cfg.UnverifiedLimit, max(0, p.cfg.UnverifiedLimit-s.Added)
		s.Limit, s.Left = &limit, &left
	}
	return s, nil
}

// ToDo is what lifts the limit, for the payer.
func (s Standing) ToDo() string {
	var do []string
	if !s.EmailVerified {
		do = append(do, "confirm your e-mail address (the account page sends the link)")
	}
	if !s.CardVerified {
		do = append(do, "save a card (the billing page, or muster billing cards add)")
	}
	return strings.Join(do, " and ")
}

// allow says whether the org may add so much. Concurrent callers wait for each other. Fault: QuotaExceeded.
func (p *Payments) allow(ctx context.Context, tx *db.Tx, org id.Org, amount money.Nano) error {
	if p.cfg.UnverifiedLimit == 0 {
		return nil
	}
	if err := tx.Q.LockTopups(ctx, org.String()); err != nil {
		return fmt.Errorf("lock top-ups of %s: %w", org, err)
	}
	s, err := p.standing(ctx, tx.Q, org)
	if err != nil || s.Limit == nil || amount <= *s.Left {
		return err
	}
	return fault.New(fault.QuotaExceeded, "until you are verified at most %s %s can be added, of which %s is left: %s",
		inCents(*s.Limit), p.cfg.Currency, inCents(*s.Left), s.ToDo())
}

// inCents is an amount in whole cents, rounded down.
func inCents(n money.Nano) string {
	c := n / money.Cent
	return fmt.Sprintf("%d.%02d", c/100, c%100)
}

// sentence is a fault's message as a sentence of its own.
func sentence(m string) string { return strings.ToUpper(m[:1]) + m[1:] + "." }
