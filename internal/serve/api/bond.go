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

type liabilityInput struct {
	Nodes int    `query:"nodes" minimum:"2" maximum:"128" required:"true" doc:"of the gang" example:"8"`
	Price string `query:"price_per_hour" required:"true" doc:"of each of the other nodes, a decimal" example:"20.00"`
}

func (a bondAPI) liability(_ context.Context, _ account.Principal, in *liabilityInput) (client.Liability, error) {
	rate, err := money.ParseMicro(in.Price)
	if err != nil || rate < 0 || rate > 1_000_000*1_000_000 {
		return client.Liability{}, fault.InvalidField("price_per_hour", "is a decimal of at most a million")
	}
	return client.Liability{Nodes: in.Nodes, Amount: bond.LiabilityOf(in.Nodes, rate)}, nil
}

type bondAmountInput struct {
	Keyed
	Body struct {
		Amount string `json:"amount" doc:"a decimal" example:"25.00"`
	}
}

func (a bondAPI) deposit(ctx context.Context, p account.Principal, in *bondAmountInput,
	once idem.Request) (client.Bond, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return client.Bond{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	s, done, err := a.bonds.Deposit(ctx, p, amount, idem.As(once, viewBond))
	return viewBond(s), done, err
}

func viewWithdrawn(w bond.Withdrawn) client.BondWithdrawal {
	return client.BondWithdrawal{ToBalance: w.ToWallet, ToPayable: w.ToPayable, Bond: viewBond(w.Bond)}
}

func (a bondAPI) withdraw(ctx context.Context, p account.Principal, in *bondAmountInput,
	once idem.Request) (client.BondWithdrawal, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return client.BondWithdrawal{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	w, done, err := a.bonds.Withdraw(ctx, p, amount, idem.As(once, viewWithdrawn))
	return viewWithdrawn(w), done, err
}

type bondTermsInput struct {
	Body struct {
		RetainPPM      *int64  `json:"retain_ppm,omitempty" doc:"0 to 1000000; left out: as it is" example:"250000"`
		AcceptUnbonded *bool   `json:"accept_unbonded,omitempty" doc:"left out: as it is"`
		LiabilityMax   *string `json:"gang_liability_max,omitempty" doc:"a decimal, or \"none\" for no limit; left out: as it is" example:"25.00"`
	}
}

func (a bondAPI) changeTerms(ctx context.Context, p account.Principal, in *bondTermsInput) (client.Bond, error) {
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

type hostLiabilityInput struct {
	ID   string `path:"id"`
	Body struct {
		LiabilityMax string `json:"gang_liability_max" doc:"a decimal, or \"none\": your organisation's limit applies" example:"25.00"`
	}
}

func (a bondAPI) changeHostLiability(ctx context.Context, p account.Principal,
	in *hostLiabilityInput) (client.Bond, error) {
	of, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return client.Bond{}, err
	}
	limit, err := limitOf(in.Body.LiabilityMax)
	if err != nil {
		return client.Bond{}, err
	}
	s, err := a.bonds.SetHostLiability(ctx, p, of, limit)
	return viewBond(s), err
}

func (a bondAPI) suspensions(ctx context.Context, p account.Principal, in *idInput) (list[client.Suspension], error) {
	cl, err := pathID[id.Cluster](in.ID, "cluster")
	if err != nil {
		return list[client.Suspension]{}, err
	}
	rows, err := a.bonds.Suspensions(ctx, p, cl)
	return whole(rows, viewSuspension), err
}

func viewSuspension(s bond.Suspension) client.Suspension { return client.Suspension(s) }

func (a adminAPI) gangs(ctx context.Context, p account.Principal, in *struct {
	Days int `query:"days" minimum:"1" maximum:"366" default:"30" doc:"how far back strikes, relief and unbilled time go"`
}) (statement.Gangs, error) {
	return a.statements.GangsOf(ctx, p, in.Days)
}
