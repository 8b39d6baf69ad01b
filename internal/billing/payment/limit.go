package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Standings decides how far orgs may pay in.
type Standings struct{ *core }

// Standing is how far an org may pay in. Until an owner's e-mail address and a card are verified, what it adds is
// limited: stolen cards are tried on new accounts. What can be spent is what was paid in, so the limit holds for that
// too.
type Standing = client.Standing

// Of returns the org's.
func (st *Standings) Of(ctx context.Context, org id.Org) (Standing, error) {
	return st.of(ctx, st.d.Q, org)
}

func (st *Standings) of(ctx context.Context, q *dbq.Queries, org id.Org) (Standing, error) {
	r, err := q.PayerStanding(ctx, pgtype.UUID{Bytes: org.UUID(), Valid: true})
	if err != nil {
		return Standing{}, fmt.Errorf("read standing of %s: %w", org, err)
	}
	s := Standing{EmailVerified: r.EmailVerified, CardVerified: r.CardVerified, Added: money.Nano(r.Added)}
	if st.cfg.UnverifiedLimit > 0 && !(s.EmailVerified && s.CardVerified) {
		limit, left := st.cfg.UnverifiedLimit, max(0, st.cfg.UnverifiedLimit-s.Added)
		s.Limit, s.Left = &limit, &left
	}
	return s, st.addDisputes(ctx, q, org, &s)
}

// addDisputes fills in what disputes make of the org's standing.
func (st *Standings) addDisputes(ctx context.Context, q *dbq.Queries, org id.Org, s *Standing) error {
	s.State = StandingOK
	row, err := q.PaymentStanding(ctx, org)
	if err != nil && !db.NoRows(err) {
		return fmt.Errorf("read payment standing of %s: %w", org, err)
	}
	if err != nil {
		return nil // it never had a dispute
	}
	s.State = StandingState(row.State)
	n, err := q.DisputeCounts(ctx, org)
	if err != nil {
		return fmt.Errorf("read disputes of %s: %w", org, err)
	}
	c, err := q.DisputeClaims(ctx, org, st.cfg.Currency)
	if err != nil {
		return fmt.Errorf("read claims on %s: %w", org, err)
	}
	s.Disputed, s.LostDisputes, s.Short, s.Debt = money.Nano(n.Disputed), n.Lost, money.Nano(c.Short), money.Nano(c.Debt)
	var left money.Nano
	switch s.State {
	case StandingDisputed:
		if left, err = st.leftWhileDisputed(ctx, q, org); err != nil {
			return err
		}
		s.DisputedLeft = &left
	case StandingSuspended:
		s.DisputedLeft = &left
	}
	return nil
}

// toDo returns what lifts the limit, for the payer.
func toDo(s Standing) string {
	var do []string
	if !s.EmailVerified {
		do = append(do, "confirm your e-mail address (the account page sends the link)")
	}
	if !s.CardVerified {
		do = append(do, "save a card (the billing page, or muster billing cards add)")
	}
	return strings.Join(do, " and ")
}

// allow returns nil if the org may add an amount. Concurrent callers wait for each other. Faults: QuotaExceeded,
// Forbidden (the org is suspended).
func (st *Standings) allow(ctx context.Context, tx *db.Tx, org id.Org, amount money.Nano) error {
	if err := st.allowDisputed(ctx, tx, org, amount); err != nil {
		return err
	}
	if st.cfg.UnverifiedLimit == 0 {
		return nil
	}
	if err := tx.Q.LockTopups(ctx, org.String()); err != nil {
		return fmt.Errorf("lock top-ups of %s: %w", org, err)
	}
	s, err := st.of(ctx, tx.Q, org)
	if err != nil || s.Limit == nil || amount <= *s.Left {
		return err
	}
	return fault.New(fault.QuotaExceeded, "until you are verified, at most %s %s can be added, of which %s is left: %s",
		inCents(*s.Limit), st.cfg.Currency, inCents(*s.Left), toDo(s))
}

// inCents returns an amount in whole cents, rounded down.
func inCents(n money.Nano) string {
	c := n / money.Cent
	return fmt.Sprintf("%d.%02d", c/100, c%100)
}

// sentence returns a fault's message with a capital letter and a full stop.
func sentence(m string) string { return strings.ToUpper(m[:1]) + m[1:] + "." }
