package payment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/stripe"
)

// Card is a card that Stripe keeps for the org.
type Card = client.Card

// CardSetup is a visit to the page on which a card is saved.
type CardSetup struct {
	ID        id.CardSetup `json:"id"`
	State     State        `json:"state"`
	URL       string       `json:"url,omitempty"`     // of the page, while pending
	Failure   string       `json:"failure,omitempty"` // for the payer
	CreatedAt time.Time    `json:"created_at"`
	Sandbox   bool         `json:"sandbox,omitempty"`
}

// maxOpenSetups is how many pages for saving a card an org may open in an hour and leave: a thief who tries stolen
// numbers needs many.
const maxOpenSetups = 10

func errNoCard() error { return fault.New(fault.NotFound, "card not found") }

// AddCard opens the page on which a card is saved. back is where the page sends people; empty: Config.ReturnURL. The
// answer is Pending without a URL when Stripe does not answer now. Fault: RateLimited.
func (p *Payments) AddCard(ctx context.Context, payer account.Principal, back string,
	key idem.Request) (CardSetup, idem.Outcome, error) {
	if back == "" {
		back = p.cfg.ReturnURL
	}
	var send []id.Outbox
	made, done, err := idem.Once(ctx, p.d, key.ByReference(), func(ctx context.Context, tx *db.Tx) (
		ref reference[id.CardSetup], err error) {
		ref.ID = id.New[id.CardSetup]()
		send, err = p.openSetup(ctx, tx, payer, ref.ID, back)
		return ref, err
	})
	if err != nil {
		return CardSetup{}, idem.Outcome{}, fmt.Errorf("add card: %w", err)
	}
	if !done.Replayed {
		p.send(ctx, send)
	}
	s, err := p.CardSetup(ctx, payer.Org, made.ID)
	return s, done.Again(), err
}

// openSetup stores a page for saving a card and queues its creation at Stripe.
func (p *Payments) openSetup(ctx context.Context, tx *db.Tx, payer account.Principal, setup id.CardSetup,
	back string) ([]id.Outbox, error) {
	open, err := tx.Q.OpenCardSetups(ctx, payer.Org)
	if err != nil {
		return nil, err
	}
	if open >= maxOpenSetups {
		f := fault.New(fault.RateLimited, "too many pages for saving a card were opened: use one of them, or wait")
		f.RetryAfter = 10 * time.Minute
		return nil, f
	}
	out := &outgoing{tx: tx}
	if _, err := p.customer(ctx, out, payer); err != nil {
		return nil, err
	}
	if err := tx.Q.InsertCardSetup(ctx, setup, payer.Org); err != nil {
		return nil, err
	}
	if err := out.add(ctx, kindSetup, setup.String(), "setup:"+setup.String(), stripe.NewSetup{
		Setup: setup.String(), Currency: p.cfg.Currency, SuccessURL: back, CancelURL: back}); err != nil {
		return nil, err
	}
	return out.rows, audit.Record(ctx, tx, payer.Event("billing.card_page", setup.String(), nil))
}

// CardSetup returns the present state of a visit; another org's is fault.NotFound.
func (p *Payments) CardSetup(ctx context.Context, org id.Org, setup id.CardSetup) (CardSetup, error) {
	s, err := p.d.Q.CardSetup(ctx, setup)
	if err != nil && !db.NoRows(err) {
		return CardSetup{}, fmt.Errorf("read card setup %s: %w", setup, err)
	}
	if err != nil || s.OrgID != org {
		return CardSetup{}, fault.New(fault.NotFound, "page for saving a card not found")
	}
	return CardSetup{
		ID:        s.ID,
		State:     State(s.State),
		URL:       s.URL,
		Failure:   s.Failure,
		CreatedAt: s.CreatedAt,
		Sandbox:   p.cfg.Sandbox,
	}, nil
}

// RefreshSetup reads the setup from Stripe, for a payer who comes back from the page, and returns what CardSetup
// returns.
func (p *Payments) RefreshSetup(ctx context.Context, org id.Org, setup id.CardSetup) (CardSetup, error) {
	s, err := p.CardSetup(ctx, org, setup)
	if err != nil || s.State != Pending {
		return s, err
	}
	row, err := p.d.Q.OutboxByKey(ctx, "setup:"+setup.String())
	if err != nil || row.State != stateDone {
		return s, err
	}
	if _, err := p.refresh(ctx, row.ResultID); err != nil {
		p.log.WarnContext(ctx, "a card cannot be asked about now", "setup", setup, "error", err)
	}
	return p.CardSetup(ctx, org, setup)
}

// Cards returns the org's, newest first.
func (p *Payments) Cards(ctx context.Context, org id.Org) ([]Card, error) {
	rows, err := p.d.Q.ListCards(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read cards of %s: %w", org, err)
	}
	out := make([]Card, len(rows))
	for i, k := range rows {
		out[i] = Card{
			ID:       k.ID,
			Brand:    k.Brand,
			Last4:    k.Last4,
			ExpMonth: int(k.ExpMonth),
			ExpYear:  int(k.ExpYear),
			Default:  k.IsDefault,
			AddedAt:  k.CreatedAt,
		}
	}
	return out, nil
}

// SetDefaultCard makes a card the one that pays where none is named. Fault: NotFound.
func (p *Payments) SetDefaultCard(ctx context.Context, payer account.Principal, card id.Card) error {
	return p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		k, err := tx.Q.CardForUpdate(ctx, card, payer.Org)
		if db.NoRows(err) {
			return errNoCard()
		}
		if err != nil {
			return fmt.Errorf("lock card %s: %w", card, err)
		}
		if n, err := tx.Q.SetDefaultMethod(ctx, k.MethodID, payer.Org); err != nil {
			return err
		} else if err := p.cardChanged(ctx, tx, payer.Org, n); err != nil {
			return err
		}
		return audit.Record(ctx, tx, payer.Event("billing.card_default", card.String(), nil))
	})
}

// RemoveCard forgets a card, here at once and at Stripe soon. Fault: NotFound.
func (p *Payments) RemoveCard(ctx context.Context, payer account.Principal, card id.Card) error {
	var send []id.Outbox
	err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		k, err := tx.Q.CardForUpdate(ctx, card, payer.Org)
		if db.NoRows(err) {
			return errNoCard()
		}
		if err != nil {
			return fmt.Errorf("lock card %s: %w", card, err)
		}
		if err := tx.Q.RemoveCard(ctx, card); err != nil {
			return err
		}
		if n, err := tx.Q.ReplaceDefaultMethod(ctx, payer.Org, k.MethodID); err != nil {
			return err
		} else if err := p.cardChanged(ctx, tx, payer.Org, n); err != nil {
			return err
		}
		out := &outgoing{tx: tx}
		if err := out.add(ctx, kindDetach, card.String(), "detach:"+k.MethodID, detachParams{k.MethodID}); err != nil {
			return err
		}
		send = out.rows
		return audit.Record(ctx, tx, payer.Event("billing.card_remove", card.String(), nil))
	})
	if err == nil {
		p.send(ctx, send)
	}
	return err
}

// detachParams are the frozen parameters of forgetting a card.
type detachParams struct {
	Method string `json:"method"`
}

func (p *Payments) sendDetach(ctx context.Context, o dbq.ClaimOutboxRow) (fail, err error) {
	var d detachParams
	if err := json.Unmarshal(o.Params, &d); err != nil {
		return nil, err
	}
	if fail := p.stripe.DetachCard(ctx, o.IdemKey, d.Method); fail != nil {
		return fail, nil
	}
	return nil, p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return finish(ctx, tx, o, stateDone, d.Method,
			"")
	})
}

// sendSetup makes the page. One that is made a second time, a day later, does no harm.
func (p *Payments) sendSetup(ctx context.Context, o dbq.ClaimOutboxRow) (fail, err error) {
	var n stripe.NewSetup
	if err := json.Unmarshal(o.Params, &n); err != nil {
		return nil, err
	}
	setup, err := id.Parse[id.CardSetup](o.Ref)
	if err != nil {
		return nil, err
	}
	s, err := p.d.Q.CardSetup(ctx, setup)
	if err != nil {
		return nil, err
	}
	c, err := p.d.Q.StripeCustomer(ctx, s.OrgID)
	if db.NoRows(err) {
		return errNoCustomer, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read customer: %w", err)
	}
	n.Customer = c.CustomerID
	page, fail := p.stripe.CreateSetup(ctx, o.IdemKey, n)
	if fail != nil {
		return fail, nil
	}
	return nil, p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.SetCardSetupURL(ctx, page.URL, setup); err != nil {
			return err
		}
		return finish(ctx, tx, o, stateDone, page.ID, "")
	})
}

// refreshSetup applies the state at Stripe of the saving of a card. over reports that its page is closed.
func (p *Payments) refreshSetup(ctx context.Context, object string, over bool) (note string, err error) {
	s, err := p.stripe.Setup(ctx, object)
	if err != nil {
		return ifMissing(err)
	}
	setup, err := id.Parse[id.CardSetup](s.Setup)
	if err != nil {
		return "not a card of this platform", nil
	}
	row, err := p.d.Q.CardSetup(ctx, setup)
	if db.NoRows(err) {
		return "not a card of this platform", nil
	}
	if err != nil {
		return "", err
	}
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		switch {
		case s.Done:
			if err := tx.Q.SettleCardSetup(ctx, string(Succeeded), "", setup); err != nil {
				return err
			}
			return p.saveCard(ctx, tx, row.OrgID, s.Card)
		case over:
			return tx.Q.SettleCardSetup(ctx, string(Canceled), "The page was closed before a card was saved.", setup)
		}
		return nil
	})
}

// saveCard keeps what names a card to its owner; the first one is the default. nil: there is nothing to keep.
func (p *Payments) saveCard(ctx context.Context, tx *db.Tx, org id.Org, c *stripe.Card) error {
	if c == nil {
		return nil
	}
	var fingerprint *string
	if c.Fingerprint != "" {
		fingerprint = &c.Fingerprint
	}
	if err := tx.Q.SaveCard(ctx, dbq.SaveCardParams{
		ID:          id.New[id.Card](),
		OrgID:       org,
		MethodID:    c.Method,
		Brand:       c.Brand,
		Last4:       c.Last4,
		ExpMonth:    int32(c.ExpMonth),
		ExpYear:     int32(c.ExpYear),
		Fingerprint: fingerprint,
	}); err != nil {
		return fmt.Errorf("save card: %w", err)
	}
	n, err := tx.Q.SetFirstMethod(ctx, c.Method, org)
	if err != nil {
		return fmt.Errorf("save card: %w", err)
	}
	return p.cardChanged(ctx, tx, org, n)
}
