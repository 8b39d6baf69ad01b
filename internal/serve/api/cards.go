package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func (a billingAPI) listCards(ctx context.Context, p account.Principal, _ *struct{}) (list[payment.Card], error) {
	cards, err := a.payments.Cards.List(ctx, p.Org)
	return cut(cards, len(cards), same[payment.Card], func(c payment.Card) string { return c.ID.String() }), err
}

type addCardInput struct{ Keyed }

func (a billingAPI) addCard(ctx context.Context, p account.Principal, _ *addCardInput,
	once idem.Request) (payment.CardSetup, idem.Outcome, error) {
	return a.payments.Cards.Add(ctx, p, "", once)
}

func (a billingAPI) getCardSetup(ctx context.Context, p account.Principal,
	in *of[id.CardSetup]) (payment.CardSetup, error) {
	return a.payments.Cards.RefreshSetup(ctx, p.Org, in.ID)
}

// changeCard answers with all cards: another one may have been the default.
func (a billingAPI) changeCard(ctx context.Context, p account.Principal,
	in *change[id.Card, client.ChangeCardRequest]) (list[payment.Card], error) {
	if !in.Body.Default {
		return list[payment.Card]{}, fault.InvalidField("default", "can only be true: make another card the default instead")
	}
	if err := a.payments.Cards.SetDefault(ctx, p, in.ID); err != nil {
		return list[payment.Card]{}, err
	}
	return a.listCards(ctx, p, nil)
}

func (a billingAPI) removeCard(ctx context.Context, p account.Principal, in *of[id.Card]) (nothing, error) {
	return nothing{}, a.payments.Cards.Remove(ctx, p, in.ID)
}

func (a billingAPI) getAutoTopUp(ctx context.Context, p account.Principal, _ *struct{}) (payment.AutoTopUp, error) {
	return a.payments.AutoTopUps.Get(ctx, p.Org)
}

func (a billingAPI) setAutoTopUp(ctx context.Context, p account.Principal,
	in *replace[client.SetAutoTopUpRequest]) (payment.AutoTopUp, error) {
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
	if err := a.payments.AutoTopUps.Set(ctx, p, want); err != nil {
		return want, err
	}
	return a.payments.AutoTopUps.Get(ctx, p.Org)
}
