package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
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
	in *client.PageOf) (list[client.Transaction], error) {
	before, err := cursor[id.LedgerTx](*in)
	if err != nil {
		return list[client.Transaction]{}, err
	}
	rows, err := a.statements.Transactions(ctx, p.Org, before, in.Limit+1)
	return cut(rows, in.Limit, same[client.Transaction], func(t client.Transaction) string { return t.ID.String() }),
		err
}

func (a billingAPI) price(ctx context.Context, p account.Principal, in *client.PriceQuery) (payment.Price, error) {
	amount, err := amount("amount", in.Amount)
	if err != nil {
		return payment.Price{}, err
	}
	return a.payments.Taxes.Price(ctx, p.Org, amount)
}

func (a billingAPI) topUp(ctx context.Context, p account.Principal, in *create[client.CreateTopUpRequest],
	once idem.Request) (payment.TopUp, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return payment.TopUp{}, idem.Outcome{}, err
	}
	r := payment.TopUpRequest{Amount: amount}
	if r.Total, err = positiveOrNone("total", in.Body.Total); err != nil {
		return payment.TopUp{}, idem.Outcome{}, err
	}
	if in.Body.CardID != "" {
		if r.Card, err = id.Parse[id.Card](in.Body.CardID); err != nil {
			return payment.TopUp{}, idem.Outcome{}, fault.InvalidField("card_id", "is not the id of a card")
		}
	}
	return a.payments.TopUps.Create(ctx, p, r, once)
}

func (a billingAPI) listTopUps(ctx context.Context, p account.Principal,
	in *client.PageOf) (list[payment.TopUp], error) {
	before, err := cursor[id.TopUp](*in)
	if err != nil {
		return list[payment.TopUp]{}, err
	}
	rows, err := a.payments.TopUps.List(ctx, p.Org, before, in.Limit+1)
	return cut(rows, in.Limit, same[payment.TopUp], func(t payment.TopUp) string { return t.ID.String() }), err
}

func (a billingAPI) getTopUp(ctx context.Context, p account.Principal, in *of[id.TopUp]) (payment.TopUp, error) {
	return a.payments.TopUps.Get(ctx, p.Org, in.ID)
}

func (a billingAPI) getReceipt(ctx context.Context, p account.Principal, in *of[id.TopUp]) (payment.Receipt, error) {
	return a.payments.Receipts.Get(ctx, p.Org, in.ID)
}

func (a clustersAPI) usage(ctx context.Context, p account.Principal, in *of[id.Cluster]) (client.Usage, error) {
	if _, err := a.clusters.Views.Get(ctx, p.Org, in.ID); err != nil {
		return client.Usage{}, err
	}
	return a.statements.ClusterUsage(ctx, in.ID)
}

func (a billingAPI) statement(ctx context.Context, p account.Principal,
	in *client.StatementQuery) (client.Statement, error) {
	s, err := a.statements.Statement(ctx, p.Org, in.From, in.To, in.By)
	return client.Statement(s), err
}

func (a billingAPI) statementCSV(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *client.StatementDays) error {
	s, err := a.statements.Statement(r.Context(), p.Org, in.From, in.To, "")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="statement-`+s.From+"-"+s.To+`.csv"`)
	return s.CSV(w)
}

// Proofs are passed on unchanged: package billproof defines their contents.
func (a billingAPI) clusterProof(ctx context.Context, p account.Principal,
	in *of[id.Cluster]) (json.RawMessage, error) {
	if _, err := a.clusters.Views.Get(ctx, p.Org, in.ID); err != nil {
		return nil, err
	}
	f, err := a.leases.ClusterProof(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return json.Marshal(f)
}

func (a billingAPI) leaseProof(ctx context.Context, p account.Principal, in *of[id.Lease]) (json.RawMessage, error) {
	f, err := a.leases.LeaseProof(ctx, p.Org, in.ID)
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

func (a hostsAPI) earnings(ctx context.Context, p account.Principal, in *of[id.Host]) (client.Earnings, error) {
	return a.statements.HostEarnings(ctx, p.Org, in.ID)
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
		err = a.Events.Receive(r.Context(), body, r.Header.Get("Stripe-Signature"))
	}
	if err != nil {
		writeProblem(w, a.problem(r.Context(), err))
		return
	}
	writeJSON(w, http.StatusOK, map[string]bool{"received": true})
}
