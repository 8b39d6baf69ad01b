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
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// Cards saves and forgets the cards of orgs.
type Cards struct {
	*core
	customers *customers
	invoices  *Invoices
}

// Card is a card that Stripe keeps for the org.
type Card = client.Card

// CardSetup is a visit to the page on which a card is saved.
type CardSetup = client.CardSetup

// maxOpenSetups is how many pages for saving a card an org may open in an hour and leave: a thief who tries stolen
// numbers needs many.
const maxOpenSetups = 10

func errNoCard() error { return fault.New(fault.NotFound, "card not found") }

// Add opens the page on which a card is saved. back is where the page sends people; empty: Config.ReturnURL. The
// answer is Pending without a URL when Stripe does not answer now. Fault: RateLimited.
func (cs *Cards) Add(ctx context.Context, payer account.Principal, back string,
	key idem.Request) (CardSetup, idem.Outcome, error) {
	if back == "" {
		back = cs.cfg.ReturnURL
	}
	var send []id.Outbox
	made, done, err := idem.Once(ctx, cs.d, key.ByReference(), func(ctx context.Context, tx *db.Tx) (
		ref reference[id.CardSetup], err error) {
		ref.ID = id.New[id.CardSetup]()
		send, err = cs.openSetup(ctx, tx, payer, ref.ID, back)
		return ref, err
	})
	if err != nil {
		return CardSetup{}, idem.Outcome{}, fmt.Errorf("add card: %w", err)
	}
	if !done.Replayed {
		cs.out.SendNow(ctx, send)
	}
	s, err := cs.Setup(ctx, payer.Org, made.ID)
	return s, done.Again(), err
}

// openSetup stores a page for saving a card and queues its creation at Stripe.
func (cs *Cards) openSetup(ctx context.Context, tx *db.Tx, payer account.Principal, setup id.CardSetup,
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
	out := &outbox.Batch{Tx: tx}
	if _, err := ensureCustomer(ctx, out, payer); err != nil {
		return nil, err
	}
	if err := tx.Q.InsertCardSetup(ctx, setup, payer.Org); err != nil {
		return nil, err
	}
	if err := out.Add(ctx, kindSetup, setup.String(), "setup:"+setup.String(), stripe.NewSetup{
		Setup: setup.String(), Currency: cs.cfg.Currency, SuccessURL: back, CancelURL: back}); err != nil {
		return nil, err
	}
	return out.Rows, audit.Record(ctx, tx, payer.Event("billing.card_page", setup.String(), nil))
}

// Setup returns the present state of a visit; another org's is fault.NotFound.
func (cs *Cards) Setup(ctx context.Context, org id.Org, setup id.CardSetup) (CardSetup, error) {
	s, err := cs.d.Q.CardSetup(ctx, setup)
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
		Sandbox:   cs.cfg.Sandbox,
	}, nil
}

// RefreshSetup reads the setup from Stripe, for a payer who comes back from the page, and returns what Setup
// returns.
func (cs *Cards) RefreshSetup(ctx context.Context, org id.Org, setup id.CardSetup) (CardSetup, error) {
	s, err := cs.Setup(ctx, org, setup)
	if err != nil || s.State != Pending {
		return s, err
	}
	sent, ok, err := cs.out.Find(ctx, "setup:"+setup.String())
	if err != nil || !ok || !sent.Done {
		return s, err
	}
	if _, err := cs.in.Refresh(ctx, sent.Object); err != nil {
		cs.log.WarnContext(ctx, "a card cannot be read from Stripe now", "setup", setup, "err", err)
	}
	return cs.Setup(ctx, org, setup)
}

// List returns the org's, newest first.
func (cs *Cards) List(ctx context.Context, org id.Org) ([]Card, error) {
	rows, err := cs.d.Q.ListCards(ctx, org)
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

// SetDefault makes a card the one that pays where none is named. Fault: NotFound.
func (cs *Cards) SetDefault(ctx context.Context, payer account.Principal, card id.Card) error {
	return cs.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		k, err := tx.Q.CardForUpdate(ctx, card, payer.Org)
		if db.NoRows(err) {
			return errNoCard()
		}
		if err != nil {
			return fmt.Errorf("lock card %s: %w", card, err)
		}
		if n, err := tx.Q.SetDefaultMethod(ctx, k.MethodID, payer.Org); err != nil {
			return err
		} else if err := cs.invoices.cardChanged(ctx, tx, payer.Org, n); err != nil {
			return err
		}
		return audit.Record(ctx, tx, payer.Event("billing.card_default", card.String(), nil))
	})
}

// Remove forgets a card, here at once and at Stripe soon. Fault: NotFound.
func (cs *Cards) Remove(ctx context.Context, payer account.Principal, card id.Card) error {
	var send []id.Outbox
	err := cs.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		k, err := tx.Q.CardForUpdate(ctx, card, payer.Org)
		if db.NoRows(err) {
			return errNoCard()
		}
		if err != nil {
			return fmt.Errorf("lock card %s: %w", card, err)
		}
		if send, err = cs.remove(ctx, tx, payer.Org, card, k.MethodID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, payer.Event("billing.card_remove", card.String(), nil))
	})
	if err == nil {
		cs.out.SendNow(ctx, send)
	}
	return err
}

// remove removes a card that is locked, and returns what Stripe has to be sent.
func (cs *Cards) remove(ctx context.Context, tx *db.Tx, org id.Org, card id.Card,
	method string) ([]id.Outbox, error) {
	if err := tx.Q.RemoveCard(ctx, card); err != nil {
		return nil, fmt.Errorf("remove card %s: %w", card, err)
	}
	n, err := tx.Q.ReplaceDefaultMethod(ctx, org, method)
	if err != nil {
		return nil, fmt.Errorf("replace card %s: %w", card, err)
	}
	if err := cs.invoices.cardChanged(ctx, tx, org, n); err != nil {
		return nil, err
	}
	return outbox.Add(ctx, tx, kindDetach, card.String(), "detach:"+method, detachParams{method})
}

// EndTakenOver switches auto top-up off and removes the cards of an organisation that another person may have set up
// with its owner's e-mail address: neither may the owner pay with that person's cards, nor the other way round.
func (cs *Cards) EndTakenOver(ctx context.Context, tx *db.Tx, org id.Org) error {
	const why = "The organisation was set up before its owner's e-mail address was verified."
	if err := stopAuto(ctx, tx, org, why); err != nil {
		return err
	}
	cards, err := tx.Q.ListCards(ctx, org)
	if err != nil {
		return fmt.Errorf("read cards of %s: %w", org, err)
	}
	for _, c := range cards {
		k, err := tx.Q.CardForUpdate(ctx, c.ID, org)
		if db.NoRows(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("lock card %s: %w", c.ID, err)
		}
		send, err := cs.remove(ctx, tx, org, c.ID, k.MethodID)
		if err != nil {
			return err
		}
		tx.AfterCommit(func() { cs.out.SendNow(ctx, send) })
		act := audit.Event{Org: org, Action: "billing.card_remove", Object: c.ID.String()}
		if err := audit.Record(ctx, tx, act); err != nil {
			return err
		}
	}
	return nil
}

// detachParams are the frozen parameters of forgetting a card.
type detachParams struct {
	Method string `json:"method"`
}

// detachSender removes cards at Stripe.
type detachSender struct{ *Cards }

// Send removes a card.
func (p detachSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var d detachParams
	if err := json.Unmarshal(row.Params, &d); err != nil {
		return "", nil, err
	}
	return d.Method, func(context.Context, *db.Tx) error { return nil }, client.DetachCard(ctx, row.Key, d.Method)
}

// Refused logs it: the card is removed here.
func (p detachSender) Refused(ctx context.Context, _ *db.Tx, row outbox.Row, why *stripe.Error) error {
	p.refusal(ctx, row, why)
	return nil
}

// setupSender opens pages on which a card is saved.
type setupSender struct{ *Cards }

// Send opens the page. A second one, opened a day later, does no harm.
func (p setupSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var n stripe.NewSetup
	if err := json.Unmarshal(row.Params, &n); err != nil {
		return "", nil, err
	}
	setup, err := id.Parse[id.CardSetup](row.Ref)
	if err != nil {
		return "", nil, err
	}
	s, err := p.d.Q.CardSetup(ctx, setup)
	if err != nil {
		return "", nil, err
	}
	if n.Customer, _, err = p.customers.of(ctx, s.OrgID); err != nil {
		return "", nil, err
	}
	page, err := client.CreateSetup(ctx, row.Key, n)
	return page.ID, func(ctx context.Context, tx *db.Tx) error {
		return tx.Q.SetCardSetupURL(ctx, page.URL, setup)
	}, err
}

// Refused ends the visit: it failed.
func (p setupSender) Refused(ctx context.Context, tx *db.Tx, row outbox.Row, why *stripe.Error) error {
	p.refusal(ctx, row, why)
	setup, err := id.Parse[id.CardSetup](row.Ref)
	if err != nil {
		return err
	}
	return tx.Q.SettleCardSetup(ctx, string(Failed), "The page for saving a card could not be made.", setup)
}

// refreshSetup applies the state at Stripe of the saving of a card. over reports that its page is closed.
func (cs *Cards) refreshSetup(ctx context.Context, object string, over bool) (note string, err error) {
	s, err := cs.stripe.Setup(ctx, object)
	if err != nil {
		return ifMissing(err)
	}
	setup, err := id.Parse[id.CardSetup](s.Setup)
	if err != nil {
		return "not a card of this platform", nil
	}
	row, err := cs.d.Q.CardSetup(ctx, setup)
	if db.NoRows(err) {
		return "not a card of this platform", nil
	}
	if err != nil {
		return "", err
	}
	return "", cs.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		switch {
		case s.Done:
			if err := tx.Q.SettleCardSetup(ctx, string(Succeeded), "", setup); err != nil {
				return err
			}
			return cs.save(ctx, tx, row.OrgID, s.Card)
		case over:
			return tx.Q.SettleCardSetup(ctx, string(Canceled), "The page was closed before a card was saved.", setup)
		}
		return nil
	})
}

// save keeps what names a card to its owner; the first one is the default. nil: there is nothing to keep.
func (cs *Cards) save(ctx context.Context, tx *db.Tx, org id.Org, c *stripe.Card) error {
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
		Test:        cs.cfg.TestCards,
	}); err != nil {
		return fmt.Errorf("save card: %w", err)
	}
	n, err := tx.Q.SetFirstMethod(ctx, c.Method, org)
	if err != nil {
		return fmt.Errorf("save card: %w", err)
	}
	return cs.invoices.cardChanged(ctx, tx, org, n)
}
