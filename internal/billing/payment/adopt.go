package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// Adoption books payments, refunds and disputes by their state at Stripe, also those that a restored database may have
// lost.
type Adoption struct {
	*core
	invoices *Invoices
	taxes    *Taxes
	cards    *Cards
	refunds  *Refunds
	disputes *Disputes
	topups   *TopUps
}

// Metadata of payments and refunds from which a lost row is made again.
const (
	metaUser      = "user"
	metaOrg       = "org"
	metaNet       = "net" // of the wallet's part, in cents
	metaTax       = "tax" // JSON of tax.Tax
	metaAutomatic = "automatic"
)

func topupMeta(org id.Org, user id.User, net money.Nano, on tax.Tax, automatic bool) (map[string]string, error) {
	b, err := json.Marshal(on)
	if err != nil {
		return nil, err
	}
	m := map[string]string{metaOrg: org.String(), metaUser: user.String(), metaNet: inWholeCents(net), metaTax: string(b)}
	if automatic {
		m[metaAutomatic] = "true"
	}
	return m, nil
}

func refundMeta(net money.Nano) map[string]string {
	return map[string]string{metaNet: inWholeCents(net)}
}

func inWholeCents(n money.Nano) string { return strconv.FormatInt(int64(n/money.Cent), 10) }

// madeAt returns the moment in a UUIDv7.
func madeAt(u uuid.UUID) time.Time {
	var ms int64
	for _, b := range u[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

// Outcome is what became of an object of Stripe's that a restored database may have lost.
type Outcome string

const (
	Known   Outcome = "known"   // the ledger had it
	Booked  Outcome = "booked"  // the ledger has it now
	Open    Outcome = "open"    // a person decides; Note has the reason
	Foreign Outcome = "foreign" // not made by this platform, or nothing of it has moved
)

// Adopted is what became of one object.
type Adopted struct {
	Outcome Outcome
	Org     id.Org
	Note    string
}

// RecordAdopted is called in the transaction that books an object; it may be nil.
type RecordAdopted func(ctx context.Context, tx *db.Tx, a Adopted) error

func (f RecordAdopted) call(ctx context.Context, tx *db.Tx, a Adopted) error {
	if f == nil {
		return nil
	}
	return f(ctx, tx, a)
}

// Payment books a payment that a restored database may have lost, by its state at Stripe. Its top-up is created
// again under the same id, so that any number of calls credits it once.
func (ad *Adoption) Payment(ctx context.Context, object string, record RecordAdopted) (Adopted, error) {
	pay, err := ad.stripe.Payment(ctx, object)
	if e := stripe.As(err); e != nil && e.Outcome == stripe.Missing {
		return Adopted{Outcome: Foreign, Note: "Stripe does not know it"}, nil
	}
	if err != nil {
		return Adopted{}, fmt.Errorf("adopt %s: %w", object, err)
	}
	a, err := ad.payment(ctx, pay, record)
	if err != nil {
		err = fmt.Errorf("adopt %s: %w", object, err)
	}
	return a, err
}

func (ad *Adoption) payment(ctx context.Context, pay stripe.Payment, record RecordAdopted) (Adopted, error) {
	if pay.Invoice != "" {
		var note string
		var err error
		if ad.invoices.biller != nil {
			note, err = ad.invoices.Refresh(ctx, pay.Invoice)
		}
		if note == "" {
			return Adopted{Outcome: Known, Note: "it pays invoice " + pay.Invoice}, err
		}
		return Adopted{Outcome: Open, Note: "it pays invoice " + pay.Invoice + ", which is " + note}, err
	}
	topup, err := id.Parse[id.TopUp](pay.TopUp)
	if err != nil {
		return Adopted{Outcome: Foreign, Note: notOurs}, nil
	}
	kind, err := ad.topups.kindOf(ctx, topup)
	if err != nil {
		return Adopted{}, err
	}
	var lost dbq.InsertTopupParams
	switch {
	case kind == "" && pay.Status != stripe.Succeeded && pay.Status != stripe.Waiting:
		return Adopted{Outcome: Foreign, Note: "nothing was paid"}, nil
	case kind == "":
		var why string
		if lost, why, err = ad.lostTopup(ctx, topup, pay); err != nil || why != "" {
			return Adopted{Outcome: Open, Org: lost.OrgID, Note: why}, err
		}
	}
	out := Adopted{Outcome: Known}
	err = ad.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		before, err := tx.Q.TopupForUpdate(ctx, topup)
		if db.NoRows(err) {
			err = insertLost(ctx, tx, lost, pay)
		}
		if err != nil {
			return err
		}
		if err := ad.topups.settle(ctx, tx, topup, pay, kind == kindPayment); err != nil {
			return err
		}
		after, err := tx.Q.TopupForUpdate(ctx, topup)
		if err != nil {
			return err
		}
		if out.Org = after.OrgID; before.State == after.State {
			return nil
		}
		out.Outcome, out.Note = Booked, "top-up "+topup.String()+" is "+after.State
		return record.call(ctx, tx, out)
	})
	return out, err
}

// lostTopup returns the row of a top-up, made from its payment, or why that cannot be done.
func (ad *Adoption) lostTopup(ctx context.Context, topup id.TopUp,
	pay stripe.Payment) (row dbq.InsertTopupParams, why string, err error) {
	org, err := ad.orgOf(ctx, pay)
	if err != nil {
		return row, "", err
	}
	if org.IsZero() {
		return row, "the organisation that paid is not in the database: it signed up after the backup. Give the payment " +
			"back at Stripe", nil
	}
	row = dbq.InsertTopupParams{
		ID:        topup,
		OrgID:     org,
		Currency:  pay.Currency,
		Automatic: pay.Meta[metaAutomatic] != "",
		TaxReason: string(tax.Off),
	}
	if user, err := id.Parse[id.User](pay.Meta[metaUser]); err == nil {
		row.UserID = user
	}
	net, on := pay.Cents, tax.Tax{Reason: tax.Off}
	if s, ok := pay.Meta[metaNet]; ok {
		if net, err = strconv.ParseInt(s, 10, 64); err == nil {
			err = json.Unmarshal([]byte(pay.Meta[metaTax]), &on)
		}
		if err != nil || net+on.Cents != pay.Cents {
			return row, "its metadata was changed at Stripe. Credit or return it by hand", nil
		}
	} else if _, none := ad.cfg.Taxer.(tax.None); !none { // made by an earlier version
		return row, "an earlier version created it, and how much of it is tax is not known. Credit or return it by hand", nil
	}
	if row.Amount, err = stripe.FromCents(net); err != nil || row.Amount <= 0 {
		return row, "its amount is not possible for a top-up", nil
	}
	row.Tax, row.TaxPpm, row.TaxName, row.TaxReason, row.TaxCountry, row.TaxVatID = on.Amount(), int32(on.PPM), on.Name,
		string(on.Reason), on.Country, on.VATID
	return row, "", nil
}

// orgOf returns the organisation that made a payment, by its metadata or else by its customer; zero: it is not in the
// database.
func (ad *Adoption) orgOf(ctx context.Context, pay stripe.Payment) (id.Org, error) {
	name := pay.Meta[metaOrg]
	if name == "" && pay.Customer != "" {
		org, err := ad.d.Q.OrgOfCustomer(ctx, pay.Customer)
		if err == nil || !db.NoRows(err) {
			return org, err
		}
		if name, err = ad.stripe.CustomerOrg(ctx, pay.Customer); err != nil {
			return id.Org{}, err
		}
	}
	org, err := id.Parse[id.Org](name)
	if err != nil {
		return id.Org{}, nil
	}
	org, err = ad.d.Q.AdoptedOrg(ctx, org)
	if db.NoRows(err) {
		return id.Org{}, nil
	}
	return org, err
}

// insertLost writes a top-up again, with the row of the outbox that was done for it.
func insertLost(ctx context.Context, tx *db.Tx, row dbq.InsertTopupParams, pay stripe.Payment) error {
	if err := tx.Q.InsertTopup(ctx, row); err != nil {
		return fmt.Errorf("insert top-up %s: %w", row.ID, err)
	}
	out := &outbox.Batch{Tx: tx}
	return out.AddDone(ctx, kindPayment, row.ID.String(), topupKey(row.ID), stripe.NewPayment{
		TopUp:    row.ID.String(),
		Customer: pay.Customer,
		Cents:    pay.Cents,
		Currency: pay.Currency,
	}, pay.ID)
}

// Refund books a refund that a restored database may have lost. Its payment must have been adopted before.
func (ad *Adoption) Refund(ctx context.Context, object string, record RecordAdopted) (Adopted, error) {
	got, err := ad.stripe.Refund(ctx, object)
	if err != nil {
		return Adopted{}, fmt.Errorf("adopt %s: %w", object, err)
	}
	ours, err := id.Parse[id.Refund](got.Refund)
	if err != nil {
		note, err := ad.refunds.refreshInvoice(ctx, got)
		return Adopted{Outcome: Foreign, Note: note}, err
	}
	out := Adopted{Outcome: Known}
	err = ad.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		before, err := tx.Q.RefundForUpdate(ctx, ours)
		if db.NoRows(err) {
			err = ad.insertLostRefund(ctx, tx, ours, got)
		}
		if err != nil {
			return err
		}
		if err := ad.refunds.settle(ctx, tx, ours, got); err != nil {
			return err
		}
		after, err := tx.Q.RefundForUpdate(ctx, ours)
		if err != nil {
			return err
		}
		if out.Org = after.OrgID; before.State == after.State {
			return nil
		}
		out.Outcome, out.Note = Booked, "refund "+ours.String()+" is "+after.State
		return record.call(ctx, tx, out)
	})
	switch {
	case fault.Is(err, fault.InsufficientFunds):
		return Adopted{
			Outcome: Open,
			Note:    "the wallet no longer holds what was given back: it was spent before the backup and freed after it",
		}, nil
	case errors.Is(err, errNoTopup):
		return Adopted{Outcome: Open, Note: "its payment is not a top-up in the database"}, nil
	case err != nil:
		return out, fmt.Errorf("adopt %s: %w", object, err)
	}
	return out, nil
}

var errNoTopup = errors.New("no top-up was paid by it")

// insertLostRefund writes a refund again and takes its money out of the wallet again.
func (ad *Adoption) insertLostRefund(ctx context.Context, tx *db.Tx, ours id.Refund, got stripe.Refund) error {
	t, err := tx.Q.TopupOfPayment(ctx, &got.Payment)
	if db.NoRows(err) {
		return errNoTopup
	}
	if err != nil {
		return err
	}
	if _, err := tx.Q.TopupForUpdate(ctx, t.ID); err != nil {
		return err
	}
	whole, err := stripe.FromCents(got.Cents)
	if err != nil {
		return err
	}
	net := whole - whole*t.Tax/(t.Amount+t.Tax)/money.Cent*money.Cent // of a refund by an earlier version
	if cents, err := strconv.ParseInt(got.Meta[metaNet], 10, 64); err == nil && cents > 0 && cents <= got.Cents {
		net = money.Nano(cents) * money.Cent
	}
	back := whole - net
	if err := tx.Q.InsertRefund(ctx, dbq.InsertRefundParams{
		ID:       ours,
		OrgID:    t.OrgID,
		TopupID:  t.ID,
		UserID:   t.UserID,
		Amount:   net,
		Currency: t.Currency,
		Tax:      back,
	}); err != nil {
		return fmt.Errorf("insert refund %s: %w", ours, err)
	}
	e := refundEntry(ours, ledger.Wallet(t.OrgID, t.Currency), "unused balance, back to the card", net, back)
	if _, err := ledger.Post(ctx, tx, e); err != nil {
		return err
	}
	if err := ad.taxes.record(ctx, tx, t, taxEntry{tax.Refund, e.Key, ours.String(), -net, -back}); err != nil {
		return err
	}
	out := &outbox.Batch{Tx: tx}
	return out.AddDone(ctx, kindRefund, ours.String(), "refund:"+ours.String(),
		stripe.NewRefund{Refund: ours.String(), Payment: got.Payment, Cents: got.Cents}, got.ID)
}

// Dispute books a dispute that a restored database may have lost.
func (ad *Adoption) Dispute(ctx context.Context, object string) (Adopted, error) {
	_, err := ad.d.Q.DisputeState(ctx, object)
	fresh := db.NoRows(err)
	if err != nil && !fresh {
		return Adopted{}, fmt.Errorf("adopt %s: %w", object, err)
	}
	switch note, err := ad.disputes.refresh(ctx, object); {
	case err != nil:
		return Adopted{}, fmt.Errorf("adopt %s: %w", object, err)
	case note != "":
		return Adopted{Outcome: Foreign, Note: note}, nil
	case fresh:
		return Adopted{Outcome: Booked, Note: "the dispute is in the ledger now"}, nil
	}
	return Adopted{Outcome: Known}, nil
}

// Move is money that moved at Stripe, or may yet.
type Move struct {
	Kind     MoveKind
	Object   string // pi_…, re_…, dp_…, tr_…, po_…, or a change of the balance, txn_…
	Amount   money.Nano
	Currency string
	At       time.Time
}

// MoveKind is what a Move is about.
type MoveKind string

const (
	MovePayment  MoveKind = "payment"
	MoveRefund   MoveKind = "refund"
	MoveDispute  MoveKind = "dispute"
	MoveTransfer MoveKind = "transfer"
	MovePayout   MoveKind = "payout" // to the platform's own bank account
	MoveOther    MoveKind = "other"
)

// Moves lists what moved at Stripe from a moment on, and payments that may yet succeed, each object once, in an order
// in which they can be booked: payments, refunds, disputes, transfers, others. Stripe's fees are left out.
func (ad *Adoption) Moves(ctx context.Context, from time.Time) ([]Move, error) {
	seen, byKind := map[string]bool{}, map[MoveKind][]Move{}
	add := func(m Move) {
		if !seen[m.Object] {
			seen[m.Object], byKind[m.Kind] = true, append(byKind[m.Kind], m)
		}
	}
	if err := ad.stripe.BalanceTxs(ctx, from, time.Now().Add(stripe.ClockSkew), func(b stripe.BalanceTx) error {
		amount, err := stripe.FromCents(b.Cents)
		if err != nil {
			return fmt.Errorf("%s: %w", b.ID, err)
		}
		m := Move{Kind: MoveOther, Object: b.Source, Amount: amount, Currency: b.Currency, At: b.CreatedAt}
		switch b.Type {
		case "stripe_fee", "network_cost":
			return nil
		case "charge", "payment":
			m.Kind, m.Object = MovePayment, b.Payment
		case "refund", "payment_refund", "refund_failure", "payment_failure_refund":
			m.Kind = MoveRefund
		case "adjustment":
			m.Kind = MoveDispute
		case "transfer":
			m.Kind = MoveTransfer
		case "transfer_refund":
			m.Kind, m.Object = MoveTransfer, b.Transfer
		case "payout", "payout_cancel", "payout_failure":
			m.Kind = MovePayout
		}
		if m.Object == "" {
			m.Kind, m.Object = MoveOther, b.ID
		}
		add(m)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list moves at Stripe: %w", err)
	}
	if err := ad.stripe.Payments(ctx, from, func(pay stripe.Payment) error {
		if pay.Status == stripe.Waiting {
			add(Move{Kind: MovePayment, Object: pay.ID, Currency: pay.Currency})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list payments at Stripe: %w", err)
	}
	var out []Move
	for _, k := range []MoveKind{MovePayment, MoveRefund, MoveDispute, MoveTransfer, MovePayout, MoveOther} {
		for _, m := range slices.Backward(byKind[k]) { // the oldest first
			out = append(out, m)
		}
	}
	return out, nil
}

// refreshPayment books a payment. over reports that the page it belongs to is closed.
func (ad *Adoption) refreshPayment(ctx context.Context, payment string, over bool) (note string, err error) {
	pay, err := ad.stripe.Payment(ctx, payment)
	if err != nil {
		return ifMissing(err)
	}
	if pay.Invoice != "" && ad.invoices.biller != nil {
		return ad.invoices.Refresh(ctx, pay.Invoice)
	}
	topup, err := id.Parse[id.TopUp](pay.TopUp)
	if err != nil {
		return notOurs, nil
	}
	kind, err := ad.topups.kindOf(ctx, topup)
	if err != nil {
		return notOurs, err
	}
	if kind == "" { // a restore may have lost it
		lost, err := ad.d.Q.LostInRestore(ctx, madeAt(topup.UUID()))
		if err != nil || !lost {
			return notOurs, err
		}
		a, err := ad.payment(ctx, pay, nil)
		return a.Note, err
	}
	return "", ad.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return ad.topups.settle(ctx, tx, topup, pay, over || kind == kindPayment)
	})
}

func (ad *Adoption) refreshCheckout(ctx context.Context, session string) (note string, err error) {
	page, err := ad.stripe.Checkout(ctx, session)
	if err != nil {
		return ifMissing(err)
	}
	if page.Setup != "" {
		return ad.cards.refreshSetup(ctx, page.Setup, !page.Open)
	}
	if page.Payment != "" {
		return ad.refreshPayment(ctx, page.Payment, !page.Open)
	}
	topup, err := id.Parse[id.TopUp](page.TopUp)
	if err != nil || page.Open {
		return "nothing paid yet", nil
	}
	if kind, err := ad.topups.kindOf(ctx, topup); err != nil || kind == "" {
		return notOurs, err
	}
	return "", ad.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return failTopUp(ctx, tx, topup, Canceled, "The payment page was closed before anything was paid.", "")
	})
}
