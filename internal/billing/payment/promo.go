package payment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// PromoCodes makes and redeems codes for credit.
type PromoCodes struct {
	*core
	standings *Standings
}

// PromoCode gives credit away: once to each person and card, a limited number of times. It can be spent and not given
// back.
type PromoCode = client.PromoCode

const (
	maxPromo        = 1000 * money.Unit
	promoTries      = 10 // per org and hour
	minPromoLetters = 8  // fewer could be guessed
)

// Create makes a code; only an admin may, with a reason for the audit log. The code is letters, digits and
// dashes, at least eight. Faults: Forbidden, Invalid, Conflict.
func (p *PromoCodes) Create(ctx context.Context, who account.Principal, c PromoCode, reason string,
	once idem.Request) (PromoCode, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return c, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (PromoCode, error) {
		c.Code, c.Currency, c.Uses = promoName(c.Code), p.cfg.Currency, 0
		var bad fault.Fields
		if len(c.Code) < minPromoLetters || len(c.Code) > 40 ||
			strings.Trim(c.Code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			bad.Add("code", "has to be %d to 40 letters, digits and dashes", minPromoLetters)
		}
		if c.Amount < money.Cent || c.Amount > maxPromo || c.Amount%money.Cent != 0 {
			bad.Add("amount", "must be whole cents between %s and %s", money.Cent.Plain(), maxPromo.Plain())
		}
		if c.MaxUses < 1 || c.MaxUses > 100_000 {
			bad.Add("max_uses", "must be between 1 and 100000")
		}
		reason = auditReason(&bad, reason)
		if err := bad.Err(); err != nil {
			return c, err
		}
		n, err := tx.Q.InsertPromoCode(ctx, dbq.InsertPromoCodeParams{
			Code:      c.Code,
			Amount:    c.Amount,
			Currency:  c.Currency,
			MaxUses:   int32(c.MaxUses),
			ExpiresAt: c.ExpiresAt,
			UserID:    who.User,
		})
		if err != nil {
			return c, fmt.Errorf("insert promo code: %w", err)
		}
		if n == 0 {
			return c, fault.New(fault.Conflict, "a code of this name exists already")
		}
		if c.CreatedAt, err = tx.Now(ctx); err != nil {
			return c, err
		}
		return c, audit.Record(ctx, tx, who.Event("promo.create", "", map[string]any{
			"amount":   c.Amount.String(),
			"max_uses": c.MaxUses,
			"reason":   reason,
		}))
	})
}

// auditReason returns a reason that only the audit log keeps.
func auditReason(bad *fault.Fields, reason string) string {
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
		bad.Add("reason", "must give the reason in at most 500 bytes; the audit log keeps it")
	}
	return reason
}

func promoName(s string) string { return strings.ToUpper(strings.TrimSpace(s)) }

// countTry counts an attempt before the code is read, in a separate transaction: a failed attempt counts too.
// Fault: RateLimited.
func (p *PromoCodes) countTry(ctx context.Context, payer account.Principal) error {
	n, err := p.d.Q.CountPromoAttempt(ctx, payer.Org)
	if err != nil {
		return fmt.Errorf("count promo attempt: %w", err)
	}
	if n > promoTries {
		f := fault.New(fault.RateLimited, "too many codes were tried: wait an hour")
		f.RetryAfter = time.Hour
		return f
	}
	return nil
}

// Redeem adds a code's credit to the org's wallet and returns the amount. An org has ten attempts per hour. Faults:
// RateLimited, NotFound (the code does not exist, is used up or has ended; the message does not distinguish them),
// Conflict (the org, another one of its circle, or the user in another org used it before), QuotaExceeded (the org's
// e-mail address has to be verified first).
func (p *PromoCodes) Redeem(ctx context.Context, payer account.Principal, code string,
	once idem.Request) (money.Nano, idem.Outcome, error) {
	if err := p.countTry(ctx, payer); err != nil {
		return 0, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (money.Nano, error) {
		s, err := p.standings.of(ctx, tx.Q, payer.Org)
		if err != nil {
			return 0, err
		}
		if s.Limit != nil && !s.EmailVerified {
			return 0, fault.New(fault.QuotaExceeded, "codes are for verified accounts: confirm your e-mail address (the "+
				"account page sends the link)")
		}
		code = promoName(code)
		if err := account.LockCircle(ctx, tx, payer.Org); err != nil {
			return 0, err
		}
		c, err := tx.Q.UsePromoCode(ctx, code)
		if db.NoRows(err) {
			return 0, fault.New(fault.NotFound, "this code cannot be used: it does not exist, is used up or has expired")
		}
		if err != nil {
			return 0, fmt.Errorf("use promo code: %w", err)
		}
		used, err := tx.Q.PromoUsedInCircle(ctx, code, payer.User, id.UUIDs(payer.Org)[0])
		if err != nil {
			return 0, fmt.Errorf("who used the code: %w", err)
		}
		if used {
			return 0, fault.New(fault.Conflict, "you, your organisation or another one that shares a person or a card with it "+
				"has used this code already")
		}
		n, err := tx.Q.InsertPromoRedemption(ctx, code, payer.Org, payer.User)
		if err != nil {
			return 0, fmt.Errorf("redeem: %w", err)
		}
		if n == 0 {
			return 0, fault.New(fault.Conflict, "your organisation has used this code already")
		}
		if _, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "promo",
			Key:  "promo:" + code + ":" + payer.Org.String(),
			Ref:  payer.Org.String(),
			Memo: "promotional credit",
			Transfers: []ledger.Transfer{{
				Debit:  ledger.Promo(c.Currency),
				Credit: ledger.Wallet(payer.Org, c.Currency),
				Amount: c.Amount,
			}},
		}); err != nil {
			return 0, err
		}
		return c.Amount, audit.Record(ctx, tx, payer.Event("promo.redeem", payer.Org.String(),
			map[string]any{"amount": c.Amount.String()}))
	})
}

// List returns the last codes made; only an admin sees them. Fault: Forbidden.
func (p *PromoCodes) List(ctx context.Context, who account.Principal) ([]PromoCode, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := p.d.Q.ListPromoCodes(ctx, 200)
	if err != nil {
		return nil, fmt.Errorf("read promo codes: %w", err)
	}
	out := make([]PromoCode, len(rows))
	for i, r := range rows {
		out[i] = promoOf(r)
	}
	return out, nil
}

func promoOf(r dbq.PromoCode) PromoCode {
	return PromoCode{
		Code:      r.Code,
		Amount:    r.Amount,
		Currency:  r.Currency,
		MaxUses:   int(r.MaxUses),
		Uses:      int(r.Uses),
		ExpiresAt: r.ExpiresAt,
		CreatedAt: r.CreatedAt,
	}
}

// Disable ends a code now, for good; only an admin may, with a reason for the audit log. Credit that it gave
// stays where it is: it was promised. Faults: Forbidden, Invalid, NotFound, Conflict (it is over already).
func (p *PromoCodes) Disable(ctx context.Context, who account.Principal, code, reason string,
	once idem.Request) (PromoCode, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return PromoCode{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (PromoCode, error) {
		var bad fault.Fields
		reason = auditReason(&bad, reason)
		if err := bad.Err(); err != nil {
			return PromoCode{}, err
		}
		code = promoName(code)
		ended, err := tx.Q.EndPromoCode(ctx, code)
		if db.NoRows(err) {
			if _, err = tx.Q.PromoCode(ctx, code); err == nil {
				return PromoCode{}, fault.New(fault.Conflict, "this code has ended already")
			}
			if db.NoRows(err) {
				return PromoCode{}, fault.New(fault.NotFound, "code not found")
			}
		}
		if err != nil {
			return PromoCode{}, fmt.Errorf("end promo code: %w", err)
		}
		return promoOf(ended), audit.Record(ctx, tx, who.Event("promo.disable", "", map[string]any{
			"code":     code,
			"uses":     ended.Uses,
			"max_uses": ended.MaxUses,
			"reason":   reason,
		}))
	})
}

// Redemption is an org's use of a code.
type Redemption = client.Redemption

// RedemptionCursor names the redemption for the list's next page.
func RedemptionCursor(r Redemption) string { return r.Code + "." + r.Org.String() }

// Redemptions returns the uses of a code ("": of all) by one org (zero: by all), newest first, those after the one that
// the cursor names ("": from the newest), at most limit. Only an admin may. Faults: Forbidden, Invalid (the cursor).
func (p *PromoCodes) Redemptions(ctx context.Context, who account.Principal, code string, org id.Org, after string,
	limit int) ([]Redemption, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	in := dbq.PromoRedemptionsParams{
		Code:    promoName(code),
		OrgID:   pgtype.UUID{Bytes: org.UUID(), Valid: !org.IsZero()},
		MaxRows: int32(limit),
	}
	if after != "" {
		last, by, _ := strings.Cut(after, ".")
		user, err := id.Parse[id.Org](by)
		if last == "" || err != nil {
			return nil, fault.InvalidField("query.after", "is not a cursor of this list")
		}
		in.AfterCode, in.AfterOrg = last, pgtype.UUID{Bytes: user.UUID(), Valid: true}
	}
	rows, err := p.d.Q.PromoRedemptions(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("read promo redemptions: %w", err)
	}
	out := make([]Redemption, len(rows))
	for i, r := range rows {
		out[i] = Redemption{
			Code:     r.Code,
			Org:      r.OrgID,
			OrgName:  r.OrgName,
			Amount:   r.Amount,
			Currency: r.Currency,
			At:       r.CreatedAt,
		}
	}
	return out, nil
}
