package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// billingAPI answers the routes of the wallet: balance, statements, proofs, top-ups, cards, refunds.
type billingAPI struct {
	clusters   *cluster.Clusters
	leases     *metering.Leases
	payments   *payment.Payments
	statements *statement.Statements
}

func (a billingAPI) balance(ctx context.Context, p account.Principal, _ *struct{}) (statement.Balance, error) {
	return a.statements.OrgBalance(ctx, p.Org)
}

func (a billingAPI) transactions(ctx context.Context, p account.Principal,
	in *struct{ Page }) (list[client.Transaction], error) {
	before, err := cursor[id.LedgerTx](in.Page)
	if err != nil {
		return list[client.Transaction]{}, err
	}
	rows, err := a.statements.Transactions(ctx, p.Org, before, in.Limit+1)
	return cut(rows, in.Limit, same[client.Transaction], func(t client.Transaction) string { return t.ID.String() }),
		err
}

type topUpInput struct {
	Keyed
	Body struct {
		Amount string `json:"amount" doc:"goes into the wallet, without tax; a decimal, in whole cents" example:"25.00"`
		Total  string `json:"total,omitempty" doc:"the total with tax that getPrice returned: if it has changed, nothing is charged (409 conflict); left out: any total" example:"29.75"`
		CardID string `json:"card_id,omitempty" doc:"one of your cards; left out: the default one, or Stripe's page when there is none"`
	}
}

type priceInput struct {
	Amount string `query:"amount" required:"true" doc:"a decimal, in whole cents" example:"25.00"`
}

func (a billingAPI) price(ctx context.Context, p account.Principal, in *priceInput) (payment.Price, error) {
	amount, err := money.ParseNano(in.Amount)
	if err != nil {
		return payment.Price{}, fault.InvalidField("amount", "%s", err)
	}
	return a.payments.Price(ctx, p.Org, amount)
}

func (a billingAPI) topUp(ctx context.Context, p account.Principal, in *topUpInput,
	once idem.Request) (payment.TopUp, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return payment.TopUp{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	r := payment.TopUpRequest{Amount: amount}
	if in.Body.Total != "" {
		if r.Total, err = money.ParseNano(in.Body.Total); err != nil || r.Total <= 0 {
			return payment.TopUp{}, idem.Outcome{}, fault.InvalidField("total", "is a decimal above zero")
		}
	}
	if in.Body.CardID != "" {
		if r.Card, err = id.Parse[id.Card](in.Body.CardID); err != nil {
			return payment.TopUp{}, idem.Outcome{}, fault.InvalidField("card_id", "is not the id of a card")
		}
	}
	return a.payments.TopUp(ctx, p, r, once)
}

func (a billingAPI) listTopUps(ctx context.Context, p account.Principal, in *struct{ Page }) (list[payment.TopUp], error) {
	before, err := cursor[id.TopUp](in.Page)
	if err != nil {
		return list[payment.TopUp]{}, err
	}
	rows, err := a.payments.List(ctx, p.Org, before, in.Limit+1)
	return cut(rows, in.Limit, same[payment.TopUp], func(t payment.TopUp) string { return t.ID.String() }), err
}

func (a billingAPI) getTopUp(ctx context.Context, p account.Principal, in *idInput) (payment.TopUp, error) {
	t, err := pathID[id.TopUp](in.ID, "top-up")
	if err != nil {
		return payment.TopUp{}, err
	}
	return a.payments.Get(ctx, p.Org, t)
}

func (a billingAPI) getReceipt(ctx context.Context, p account.Principal, in *idInput) (payment.Receipt, error) {
	t, err := pathID[id.TopUp](in.ID, "top-up")
	if err != nil {
		return payment.Receipt{}, err
	}
	return a.payments.Receipt(ctx, p.Org, t)
}

func (a clustersAPI) usage(ctx context.Context, p account.Principal, in *idInput) (client.Usage, error) {
	cl, err := pathID[id.Cluster](in.ID, "cluster")
	if err != nil {
		return client.Usage{}, err
	}
	if _, err := a.clusters.Get(ctx, p.Org, cl); err != nil {
		return client.Usage{}, err
	}
	return a.statements.ClusterUsage(ctx, cl)
}

type statementInput struct {
	From string `query:"from" doc:"first day, YYYY-MM-DD in your organisation's zone; left out: the first of this month"`
	To   string `query:"to" doc:"last day; left out: today"`
	By   string `query:"by" maxLength:"100" doc:"cluster, day, project, person, lease or label:KEY; left out: cluster"`
}

func (a billingAPI) statement(ctx context.Context, p account.Principal, in *statementInput) (client.Statement, error) {
	s, err := a.statements.Statement(ctx, p.Org, in.From, in.To, in.By)
	return client.Statement(s), err
}

func statementParams() []*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	return []*huma.Param{
		{Name: "from", In: "query", Description: "first day, YYYY-MM-DD; left out: the first of this month", Schema: text},
		{Name: "to", In: "query", Description: "last day; left out: today", Schema: text},
	}
}

func (a billingAPI) statementCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	s, err := a.statements.Statement(r.Context(), p.Org, r.URL.Query().Get("from"), r.URL.Query().Get("to"), "")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="statement-`+s.From+"-"+s.To+`.csv"`)
	return s.CSV(w)
}

// Proofs are passed on unchanged: package billproof defines their contents.
func (a billingAPI) clusterProof(ctx context.Context, p account.Principal, in *idInput) (json.RawMessage, error) {
	cl, err := pathID[id.Cluster](in.ID, "cluster")
	if err != nil {
		return nil, err
	}
	if _, err := a.clusters.Get(ctx, p.Org, cl); err != nil {
		return nil, err
	}
	f, err := a.leases.ClusterProof(ctx, cl)
	if err != nil {
		return nil, err
	}
	return json.Marshal(f)
}

func (a billingAPI) leaseProof(ctx context.Context, p account.Principal, in *idInput) (json.RawMessage, error) {
	l, err := pathID[id.Lease](in.ID, "lease")
	if err != nil {
		return nil, err
	}
	f, err := a.leases.LeaseProof(ctx, p.Org, l)
	if err != nil {
		return nil, err
	}
	return json.Marshal(f)
}

func (a ledgerAPI) ledgerHead(ctx context.Context, _ account.Principal, _ *struct{}) (client.LedgerHead, error) {
	b, err := a.statements.LedgerHead(ctx)
	if err != nil {
		return client.LedgerHead{}, err
	}
	if b == nil {
		return client.LedgerHead{}, fault.New(fault.NotFound, "nothing has been chained yet")
	}
	return client.LedgerHead{Batch: b.N, MadeAt: b.MadeAt, Hash: hex.EncodeToString(b.Hash)}, nil
}

func (a hostsAPI) earnings(ctx context.Context, p account.Principal, in *idInput) (client.Earnings, error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return client.Earnings{}, err
	}
	return a.statements.HostEarnings(ctx, p.Org, h)
}

// maxEvent is the largest webhook that is accepted, in bytes. Stripe's are far smaller.
const maxEvent = 512 << 10

// stripeWebhook stores an event of Stripe's. It needs no token, because the signature proves the sender.
func (a *API) stripeWebhook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			err = fault.New(fault.TooLarge, "the event is too large")
		} else {
			err = fault.Wrap(err, fault.Invalid, "the event could not be read")
		}
	} else {
		err = a.events.Receive(r.Context(), body, r.Header.Get("Stripe-Signature"))
	}
	if err != nil {
		writeProblem(w, a.problem(r.Context(), err))
		return
	}
	writeJSON(w, http.StatusOK, map[string]bool{"received": true})
}
