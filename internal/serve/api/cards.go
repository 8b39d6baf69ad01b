package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func (a billingAPI) listCards(ctx context.Context, p account.Principal, _ *struct{}) (list[payment.Card], error) {
	cards, err := a.payments.Cards(ctx, p.Org)
	return cut(cards, len(cards), same[payment.Card], func(c payment.Card) string { return c.ID.String() }), err
}

type addCardInput struct{ Keyed }

func (a billingAPI) addCard(ctx context.Context, p account.Principal, _ *addCardInput,
	once idem.Request) (payment.CardSetup, idem.Outcome, error) {
	return a.payments.AddCard(ctx, p, "", once)
}

func (a billingAPI) getCardSetup(ctx context.Context, p account.Principal, in *idInput) (payment.CardSetup, error) {
	s, err := pathID[id.CardSetup](in.ID, "page for saving a card")
	if err != nil {
		return payment.CardSetup{}, err
	}
	return a.payments.RefreshSetup(ctx, p.Org, s)
}

type changeCardInput struct {
	ID   string `path:"id"`
	Body struct {
		Default bool `json:"default" doc:"true: top-ups that name no card are paid with it"`
	}
}

// changeCard answers with all cards: another one may have been the default.
func (a billingAPI) changeCard(ctx context.Context, p account.Principal, in *changeCardInput) (list[payment.Card], error) {
	c, err := pathID[id.Card](in.ID, "card")
	if err != nil {
		return list[payment.Card]{}, err
	}
	if !in.Body.Default {
		return list[payment.Card]{}, fault.InvalidField("default", "can only be true: make another card the default instead")
	}
	if err := a.payments.SetDefaultCard(ctx, p, c); err != nil {
		return list[payment.Card]{}, err
	}
	return a.listCards(ctx, p, nil)
}

func (a billingAPI) removeCard(ctx context.Context, p account.Principal, in *idInput) (nothing, error) {
	c, err := pathID[id.Card](in.ID, "card")
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.payments.RemoveCard(ctx, p, c)
}

func (a billingAPI) getAutoTopUp(ctx context.Context, p account.Principal, _ *struct{}) (payment.AutoTopUp, error) {
	return a.payments.AutoTopUp(ctx, p.Org)
}

type autoTopUpInput struct {
	Body struct {
		Enabled   bool   `json:"enabled"`
		Threshold string `json:"threshold,omitempty" doc:"credit is added when less than this is available" example:"20.00"`
		Amount    string `json:"amount,omitempty" doc:"how much is added; whole cents" example:"50.00"`
		DailyCap  string `json:"daily_cap,omitempty" doc:"no more than this in 24 hours" example:"200.00"`
	}
}

func (a billingAPI) setAutoTopUp(ctx context.Context, p account.Principal, in *autoTopUpInput) (payment.AutoTopUp, error) {
	want := payment.AutoTopUp{Enabled: in.Body.Enabled}
	if want.Enabled {
		var bad fault.Fields
		for _, f := range []struct {
			name, text string
			to         *money.Nano
		}{{"threshold", in.Body.Threshold, &want.Threshold}, {"amount", in.Body.Amount, &want.Amount},
			{"daily_cap", in.Body.DailyCap, &want.DailyCap}} {
			n, err := money.ParseNano(f.text)
			if err != nil {
				bad.Add(f.name, "%s", err)
			}
			*f.to = n
		}
		if err := bad.Err(); err != nil {
			return want, err
		}
	}
	if err := a.payments.SetAutoTopUp(ctx, p, want); err != nil {
		return want, err
	}
	return a.payments.AutoTopUp(ctx, p.Org)
}
