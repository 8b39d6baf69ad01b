package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// bondShown is how many leases and payments a bond shows.
const bondShown = 200

type bondTermsView struct {
	RetainPPM      int64       `json:"retain_ppm" doc:"part of maturing earnings that is kept as bond, in millionths, until the bond is 10 hours of your list price" example:"250000"`
	AcceptUnbonded bool        `json:"accept_unbonded" doc:"whether hosts without a bond may join yours in gangs whose renter allows it (trust: any); when such a host fails, nobody pays yours"`
	LiabilityMax   *money.Nano `json:"gang_liability_max" doc:"the most that one lease of yours may be liable for; null: no limit"`
}

type liabilityView struct {
	Nodes  int        `json:"nodes"`
	Amount money.Nano `json:"amount"`
}

type bondView struct {
	Free        money.Nano        `json:"free" doc:"not reserved for a lease"`
	Reserved    money.Nano        `json:"reserved" doc:"for leases in gangs with other operators' hosts"`
	Deposited   money.Nano        `json:"deposited" doc:"of both, what came out of your balance: it goes back there when you withdraw"`
	Depositable money.Nano        `json:"depositable" doc:"could be deposited from your balance now; promotional credit cannot"`
	Terms       bondTermsView     `json:"terms"`
	Leases      []bond.Reserve    `json:"leases" doc:"what is reserved, newest first, at most 200"`
	Standby     []bond.StandbyRow `json:"standby" doc:"what your hosts were paid for standing by, and what your bond paid, newest first, at most 200"`
	Relief      []bond.ReliefRow  `json:"relief" doc:"what the platform paid your hosts for standing by while no host was to blame, newest first, at most 200"`
	Hosts       []bond.HostLimit  `json:"hosts" doc:"hosts with a limit of their own"`
	Currency    string            `json:"currency"`
}

func (a *API) bondOf(ctx context.Context, org id.Org, q *dbq.Queries) (bondView, error) {
	s, err := bond.Of(ctx, q, org, a.cfg.Currency, bondShown)
	return bondView{Free: s.Free, Reserved: s.Reserved, Deposited: s.Deposited, Depositable: s.Depositable,
		Terms:  bondTermsView{s.Terms.RetainPPM, s.Terms.AcceptUnbonded, s.Terms.LiabilityMax},
		Leases: s.Leases, Standby: s.Standby, Relief: s.Relief, Hosts: s.Hosts, Currency: s.Currency}, err
}

func (a *API) getBond(ctx context.Context, p account.Principal, _ *struct{}) (bondView, error) {
	return a.bondOf(ctx, p.Org, a.db.Q)
}

type liabilityInput struct {
	Nodes int    `query:"nodes" minimum:"2" maximum:"128" required:"true" doc:"of the gang" example:"8"`
	Price string `query:"price_per_hour" required:"true" doc:"of each of the other nodes, a decimal" example:"20.00"`
}

func (a *API) getLiability(_ context.Context, _ account.Principal, in *liabilityInput) (liabilityView, error) {
	rate, err := money.ParseMicro(in.Price)
	if err != nil || rate < 0 || rate > 1_000_000*1_000_000 {
		return liabilityView{}, fault.InvalidField("price_per_hour", "is a decimal of at most a million")
	}
	return liabilityView{in.Nodes, bond.LiabilityOf(in.Nodes, rate)}, nil
}

type bondAmountInput struct {
	Keyed
	Body struct {
		Amount string `json:"amount" doc:"a decimal" example:"25.00"`
	}
}

func (a *API) depositBond(ctx context.Context, tx *db.Tx, p account.Principal, in *bondAmountInput) (bondView, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return bondView{}, fault.InvalidField("amount", "%s", err)
	}
	if err := bond.Deposit(ctx, tx, p, a.cfg.Currency, amount); err != nil {
		return bondView{}, err
	}
	return a.bondOf(ctx, p.Org, tx.Q)
}

type withdrawnView struct {
	ToBalance money.Nano `json:"to_balance" doc:"what had come out of your balance"`
	ToPayable money.Nano `json:"to_payable" doc:"the rest: earnings, paid out with the next payout"`
	Bond      bondView   `json:"bond" doc:"after it"`
}

func (a *API) withdrawBond(ctx context.Context, tx *db.Tx, p account.Principal,
	in *bondAmountInput) (withdrawnView, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return withdrawnView{}, fault.InvalidField("amount", "%s", err)
	}
	w, err := bond.Withdraw(ctx, tx, p, a.cfg.Currency, amount)
	if err != nil {
		return withdrawnView{}, err
	}
	out := withdrawnView{ToBalance: w.ToWallet, ToPayable: w.ToPayable}
	out.Bond, err = a.bondOf(ctx, p.Org, tx.Q)
	return out, err
}

type bondTermsInput struct {
	Body struct {
		RetainPPM      *int64  `json:"retain_ppm,omitempty" doc:"0 to 1000000; left out: as it is" example:"250000"`
		AcceptUnbonded *bool   `json:"accept_unbonded,omitempty" doc:"left out: as it is"`
		LiabilityMax   *string `json:"gang_liability_max,omitempty" doc:"a decimal, or \"none\" for no limit; left out: as it is" example:"25.00"`
	}
}

func (a *API) changeBondTerms(ctx context.Context, p account.Principal, in *bondTermsInput) (out bondView, err error) {
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out, err = a.setBondTerms(ctx, tx, p, in)
		return err
	})
	return out, err
}

func (a *API) setBondTerms(ctx context.Context, tx *db.Tx, p account.Principal, in *bondTermsInput) (bondView, error) {
	t, err := bond.TermsOf(ctx, tx.Q, p.Org)
	if err != nil {
		return bondView{}, err
	}
	if in.Body.RetainPPM != nil {
		t.RetainPPM = *in.Body.RetainPPM
	}
	if in.Body.AcceptUnbonded != nil {
		t.AcceptUnbonded = *in.Body.AcceptUnbonded
	}
	if in.Body.LiabilityMax != nil {
		if t.LiabilityMax, err = limitOf(*in.Body.LiabilityMax); err != nil {
			return bondView{}, err
		}
	}
	if err := bond.SetTerms(ctx, tx, p, t); err != nil {
		return bondView{}, err
	}
	return a.bondOf(ctx, p.Org, tx.Q)
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
	idInput
	Body struct {
		LiabilityMax string `json:"gang_liability_max" doc:"a decimal, or \"none\": your organisation's limit applies" example:"25.00"`
	}
}

func (a *API) changeHostLiability(ctx context.Context, p account.Principal,
	in *hostLiabilityInput) (out bondView, err error) {
	of, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return bondView{}, err
	}
	limit, err := limitOf(in.Body.LiabilityMax)
	if err != nil {
		return bondView{}, err
	}
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := bond.SetHostLiability(ctx, tx, p, of, limit); err != nil {
			return err
		}
		out, err = a.bondOf(ctx, p.Org, tx.Q)
		return err
	})
	return out, err
}

func (a *API) bondSuspensions(ctx context.Context, p account.Principal, in *idInput) (list[bond.Suspension], error) {
	cl, err := pathID[id.Cluster](in.ID, "cluster")
	if err != nil {
		return list[bond.Suspension]{}, err
	}
	rows, err := bond.Suspensions(ctx, a.db.Q, p.Org, cl)
	return list[bond.Suspension]{Items: rows}, err
}

func (a *API) adminGangs(ctx context.Context, p account.Principal, in *struct {
	Days int `query:"days" minimum:"1" maximum:"366" default:"30" doc:"how far back strikes, relief and unbilled time go"`
}) (statement.Gangs, error) {
	return statement.GangsOf(ctx, a.db.Q, p, in.Days)
}
