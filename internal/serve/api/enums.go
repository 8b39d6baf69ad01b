package api

import (
	"reflect"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
)

// enumOf has the values of the domain's own types: the document names them wherever a field has the type. A test
// compares them with the constants of the type.
var enumOf = map[reflect.Type][]any{
	reflect.TypeFor[lifecycle.State](): values(lifecycle.Provisioning, lifecycle.Running, lifecycle.Degraded,
		lifecycle.Releasing, lifecycle.Released, lifecycle.Failed),
	reflect.TypeFor[lifecycle.NodeState](): values(lifecycle.NodePending, lifecycle.NodePulling, lifecycle.NodeStarting,
		lifecycle.NodeJoining, lifecycle.NodeReady, lifecycle.NodeLost, lifecycle.NodeStopping, lifecycle.NodeStopped,
		lifecycle.NodeFailed),
	reflect.TypeFor[lifecycle.Reason](): values(lifecycle.Reasons()...),
	reflect.TypeFor[cluster.Action]():   values(cluster.ActionRelease, cluster.ActionRestart),
	reflect.TypeFor[market.Scope]():     values(market.ScopeAny, market.ScopeFabric, market.ScopeHost),
	reflect.TypeFor[payment.State](): values(payment.Pending, payment.Succeeded, payment.Failed,
		payment.Canceled),
	reflect.TypeFor[payment.StandingState](): values(payment.StandingOK, payment.StandingDisputed,
		payment.StandingSuspended),
	reflect.TypeFor[payout.State](): values(payout.Pending, payout.Paid, payout.Failed),
	reflect.TypeFor[payout.AccountState](): values(payout.NoAccount, payout.Making, payout.Refused, payout.Incomplete,
		payout.Checking, payout.Ready, payout.Disabled),
	reflect.TypeFor[payout.Treatment](): values(payout.DomesticVAT, payout.ReverseChargeVAT, payout.NoVATID,
		payout.UnknownVAT),
	reflect.TypeFor[payout.ReversalState](): values(payout.ReversalRequested, payout.ReversalRefused),
	reflect.TypeFor[payout.Advice]():        values(payout.AdviseRefuse, payout.AdviseRelease),
	reflect.TypeFor[postpaid.State]():       values(postpaid.On, postpaid.Ending, postpaid.Off),
	reflect.TypeFor[postpaid.WriteOffState](): values(postpaid.Requested, postpaid.Refused, postpaid.Overtaken,
		postpaid.Booked, postpaid.Recovered, postpaid.Voided),
	reflect.TypeFor[document.Series](): values(document.Receipt, document.CreditNote, document.SelfBilling),
	reflect.TypeFor[tax.Kind](): values(tax.TopUp, tax.Invoice, tax.InvoiceVoid, tax.WrittenOff, tax.Recovered,
		tax.InvoiceRefund, tax.InvoiceRefundReturned, tax.Refund, tax.RefundReturned, tax.DisputeLost),
	reflect.TypeFor[tax.Reason](): values(tax.Off, tax.Home, tax.Destination, tax.ReverseCharge, tax.Outside,
		tax.Untold, ""), // empty: not decided yet
	reflect.TypeFor[account.Role](): values(account.RoleOwner, account.RoleAdmin, account.RoleMember,
		account.RoleOperator, account.RoleBilling, account.RoleViewer),
}

func values[T ~string](all ...T) []any {
	out := make([]any, len(all))
	for i, v := range all {
		out[i] = string(v)
	}
	return out
}
