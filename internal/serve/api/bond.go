package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// bondAPI answers the routes of bonds.
type bondAPI struct {
	bonds *bond.Bonds
}

func viewBond(s bond.Standing) client.Bond {
	return client.Bond{
		Free:        s.Free,
		Reserved:    s.Reserved,
		Deposited:   s.Deposited,
		Depositable: s.Depositable,
		Claimed:     s.Claimed,
		Terms: client.BondTerms{
			RetainPPM:      s.Terms.RetainPPM,
			AcceptUnbonded: s.Terms.AcceptUnbonded,
			LiabilityMax:   s.Terms.LiabilityMax,
		},
		Leases:   s.Leases,
		Standby:  s.Standby,
		Relief:   s.Relief,
		Hosts:    s.Hosts,
		Currency: s.Currency,
	}
}

func (a bondAPI) get(ctx context.Context, p account.Principal, _ *struct{}) (client.Bond, error) {
	s, err := a.bonds.Standing(ctx, p, bond.Shown)
	return viewBond(s), err
}

func (a bondAPI) liability(_ context.Context, _ account.Principal,
	in *client.LiabilityQuery) (client.Liability, error) {
	rate, err := money.ParseMicro(in.Price)
	if err != nil || rate < 0 || rate > 1_000_000*1_000_000 {
		return client.Liability{}, fault.InvalidField("price_per_hour", "is a decimal of at most a million")
	}
	return client.Liability{Nodes: in.Nodes, Amount: bond.LiabilityOf(in.Nodes, rate)}, nil
}

func (a bondAPI) deposit(ctx context.Context, p account.Principal, in *create[client.BondAmount],
	once idem.Request) (client.Bond, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return client.Bond{}, idem.Outcome{}, err
	}
	s, done, err := a.bonds.Deposit(ctx, p, amount, idem.As(once, viewBond))
	return viewBond(s), done, err
}

func viewWithdrawn(w bond.Withdrawn) client.BondWithdrawal {
	return client.BondWithdrawal{ToBalance: w.ToWallet, ToPayable: w.ToPayable, Bond: viewBond(w.Bond)}
}

func (a bondAPI) withdraw(ctx context.Context, p account.Principal, in *create[client.BondAmount],
	once idem.Request) (client.BondWithdrawal, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return client.BondWithdrawal{}, idem.Outcome{}, err
	}
	w, done, err := a.bonds.Withdraw(ctx, p, amount, idem.As(once, viewWithdrawn))
	return viewWithdrawn(w), done, err
}

func (a bondAPI) changeTerms(ctx context.Context, p account.Principal,
	in *replace[client.ChangeBondTermsRequest]) (client.Bond, error) {
	c := bond.TermsChange{RetainPPM: in.Body.RetainPPM, AcceptUnbonded: in.Body.AcceptUnbonded}
	if in.Body.LiabilityMax != nil {
		limit, err := limitOf(*in.Body.LiabilityMax)
		if err != nil {
			return client.Bond{}, err
		}
		c.LiabilityMax = &limit
	}
	s, err := a.bonds.SetTerms(ctx, p, c)
	return viewBond(s), err
}

// limitOf reads a limit: "none" is no limit.
func limitOf(s string) (*money.Nano, error) {
	if s == "none" {
		return nil, nil
	}
	n, err := money.ParseNano(s)
	if err != nil {
		return nil, fault.InvalidField("gang_liability_max", `is a decimal, or "none" for no limit`)
	}
	return &n, nil
}

func (a bondAPI) changeHostLiability(ctx context.Context, p account.Principal,
	in *change[id.Host, client.ChangeHostLiabilityRequest]) (client.Bond, error) {
	limit, err := limitOf(in.Body.LiabilityMax)
	if err != nil {
		return client.Bond{}, err
	}
	s, err := a.bonds.SetHostLiability(ctx, p, in.ID, limit)
	return viewBond(s), err
}

func (a bondAPI) suspensions(ctx context.Context, p account.Principal,
	in *of[id.Cluster]) (list[client.Suspension], error) {
	rows, err := a.bonds.Suspensions(ctx, p, in.ID)
	return whole(rows, viewSuspension), err
}

func viewSuspension(s bond.Suspension) client.Suspension { return client.Suspension(s) }

func (a adminAPI) gangs(ctx context.Context, p account.Principal, in *client.GangsQuery) (statement.Gangs, error) {
	return a.statements.GangsOf(ctx, p, in.Days)
}
