package payout

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// SelfBill is the self-billing document of one operator and calendar month (UTC): what the operator supplied to the
// merchant of record, which issues it in the operator's name. It is issued two days after the month and never changes;
// what goes back later is on the document of the month in which it does.
type SelfBill = client.SelfBill

const (
	// selfBilled is the wording that Article 226(10a) of Directive 2006/112/EC requires.
	selfBilled = "Self-billing: the recipient issues this document in the name and on behalf of the supplier."
	// selfBillAfter is how long after a month its documents are issued: no entry of the month can be committed any more.
	selfBillAfter = 48 * time.Hour
	// selfBillMonths is for how many closed months IssueSelfBills looks, should no server have run.
	selfBillMonths = 3
	selfBillBatch  = 200 // operators read at a time
)

// IssueSelfBills issues the self-billing documents of the last three closed months that have none, and returns how
// many. Run it every hour; any replica may.
func (p *Payouts) IssueSelfBills(ctx context.Context) (n int, err error) {
	now, err := p.d.Q.DatabaseTime(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	now = now.UTC()
	var errs []error
	for back := selfBillMonths; back >= 1; back-- {
		first := time.Date(now.Year(), now.Month()-time.Month(back), 1, 0, 0, 0, 0, time.UTC)
		if first.AddDate(0, 1, 0).Add(selfBillAfter).After(now) {
			continue
		}
		did, err := p.selfBillMonth(ctx, first)
		n, errs = n+did, append(errs, err)
	}
	return n, errors.Join(errs...)
}

// selfBillMonth issues the documents of the month that begins at first and is closed.
func (p *Payouts) selfBillMonth(ctx context.Context, first time.Time) (n int, err error) {
	end := first.AddDate(0, 1, 0)
	var errs []error
	var last id.Org
	for {
		after := pgtype.UUID{Bytes: last.UUID(), Valid: true}
		orgs, err := p.d.Q.OperatorsToBill(ctx, dbq.OperatorsToBillParams{
			Currency: p.cfg.Currency,
			AfterOrg: after,
			Month:    first.Format("2006-01"),
			FromID:   firstID(first.Add(-idSlack)),
			ToID:     firstID(end.Add(idSlack)),
			Since:    first,
			Until:    end,
			MaxRows:  selfBillBatch,
		})
		if err != nil {
			return n, errors.Join(append(errs, fmt.Errorf("list operators to bill: %w", err))...)
		}
		for _, org := range orgs {
			last = org
			err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return p.selfBill(ctx, tx, org, first) })
			if err != nil {
				errs = append(errs, fmt.Errorf("self-billing of %s: %w", org, err))
				continue
			}
			n++
		}
		if len(orgs) < selfBillBatch || ctx.Err() != nil {
			return n, errors.Join(errs...)
		}
	}
}

func (p *Payouts) selfBill(ctx context.Context, tx *db.Tx, org id.Org, first time.Time) error {
	end, month := first.AddDate(0, 1, 0), first.Format("2006-01")
	from, to := firstID(first.Add(-idSlack)), firstID(end.Add(idSlack))
	rows, err := tx.Q.PayoutMonths(ctx, dbq.PayoutMonthsParams{
		Zone:     "UTC",
		OrgID:    org,
		Currency: p.cfg.Currency,
		FromID:   from,
		ToID:     to,
		Since:    first,
		Until:    end,
	})
	if err != nil {
		return err
	}
	fee, err := tx.Q.OperatorFees(ctx, dbq.OperatorFeesParams{
		OrgID:    org,
		Currency: p.cfg.Currency,
		FromID:   from,
		ToID:     to,
		Since:    first,
		Until:    end,
	})
	if err != nil {
		return err
	}
	b := SelfBill{
		Month:     month,
		From:      first.Format(time.DateOnly),
		To:        end.AddDate(0, 0, -1).Format(time.DateOnly),
		Recipient: p.cfg.Merchant,
		Fee:       money.Nano(fee),
		Currency:  p.cfg.Currency,
		Wording:   selfBilled,
		Sandbox:   p.cfg.Sandbox,
	}
	for _, r := range rows {
		if r.Month == month {
			b.Earned, b.Returned = money.Nano(r.Earned), money.Nano(r.Returned)
		}
	}
	b.Total, b.Billed = b.Earned-b.Returned, b.Earned-b.Returned+b.Fee
	b.Recipient.Address = append([]string{}, b.Recipient.Address...)
	if b.Supplier, b.SupplierKnown, err = account.PartyOf(ctx, tx.Q, org); err != nil {
		return err
	}
	b.Treatment = treat(b.Supplier, b.Recipient)
	b.Note = noteOf(b.Treatment)
	return document.Issue(ctx, tx, document.Draft{Series: document.SelfBilling, Org: org,
		Key: "self_billing:" + org.UUID().String() + ":" + month + ":" + p.cfg.Currency, Content: b})
}

// SelfBills lists an operator's self-billing documents of a calendar year of issue (UTC), newest first. Fault: Invalid
// (the year).
func (p *Payouts) SelfBills(ctx context.Context, org id.Org, year string) ([]SelfBill, error) {
	return document.Year(ctx, p.d.Q, org, document.SelfBilling, year, selfBillOf)
}

// SelfBill returns one of an operator's, by its number. Fault: NotFound.
func (p *Payouts) SelfBill(ctx context.Context, org id.Org, number string) (SelfBill, error) {
	d, err := document.Get(ctx, p.d.Q, org, document.SelfBilling, number)
	if err != nil {
		return SelfBill{}, err
	}
	return selfBillOf(d)
}

func selfBillOf(d document.Issued) (b SelfBill, err error) {
	if err := json.Unmarshal(d.Content, &b); err != nil {
		return b, fmt.Errorf("self-billing document %s: %w", d.Number, err)
	}
	b.Number, b.IssuedAt = d.Number, d.IssuedAt
	return b, nil
}

// SelfBillsCSV writes self-billing documents as a table with a heading.
func SelfBillsCSV(w io.Writer, list []SelfBill) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"number", "issued", "month", "supplier", "vat_id", "billed", "fee", "earned", "returned", "total",
		"vat_treatment", "currency"}}
	for _, b := range list {
		rows = append(rows, []string{b.Number, b.IssuedAt.Format(time.DateOnly), b.Month, b.Supplier.Name, b.Supplier.VATID,
			b.Billed.String(), b.Fee.String(),
			b.Earned.String(), b.Returned.String(), b.Total.String(), string(b.Treatment), b.Currency})
	}
	return out.WriteAll(rows)
}
