package sandbox

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// balanceTx is one change of the balance.
type balanceTx struct {
	ID          string      `json:"id"`
	Object      string      `json:"object"`
	Amount      int64       `json:"amount"`
	Fee         int64       `json:"fee"`
	FeeDetails  []feeDetail `json:"fee_details"`
	Net         int64       `json:"net"`
	Currency    string      `json:"currency"`
	Type        string      `json:"type"`
	Reporting   string      `json:"reporting_category"`
	Source      any         `json:"source"` // an id, null, or the object where it is expanded
	Status      string      `json:"status"`
	AvailableOn int64       `json:"available_on"`
	Created     int64       `json:"created"`
	Description *string     `json:"description"`
}

type feeDetail struct {
	Amount      int64   `json:"amount"`
	Application *string `json:"application"`
	Currency    string  `json:"currency"`
	Description *string `json:"description"`
	Type        string  `json:"type"`
}

// Balance is the money that Stripe holds for the platform.
type Balance struct {
	store       *store
	settleAfter time.Duration // until the money of a charge is available
}

// SettleAfter makes the money of charges available so long after they are made; until then it is pending.
func (bal *Balance) SettleAfter(d time.Duration) {
	bal.store.mu.Lock()
	defer bal.store.mu.Unlock()
	bal.settleAfter = d
}

// Arrive makes all pending money available now.
func (bal *Balance) Arrive() {
	bal.store.mu.Lock()
	defer bal.store.mu.Unlock()
	for id := range bal.store.Balance.Objects {
		if b := bal.store.Balance.get(id); b.Status == "pending" {
			b.AvailableOn, b.Status = bal.store.now(), "available"
		}
	}
	bal.store.save()
}

// available is what of the balance in a currency, lower case, can be sent now.
func (bal *Balance) available(currency string) (cents int64) {
	for _, b := range bal.store.Balance.Objects {
		if b.Currency == currency && (b.AvailableOn <= bal.store.now() || b.Net < 0) {
			cents += b.Net
		}
	}
	return cents
}

// settle marks changes whose money has become available.
func (bal *Balance) settle() {
	for id, b := range bal.store.Balance.Objects {
		if b.Status == "pending" && b.AvailableOn <= bal.store.now() {
			bal.store.Balance.get(id).Status = "available"
		}
	}
}

// balanceAmount is an amount of Stripe's balance object.
type balanceAmount struct {
	Amount      int64            `json:"amount"`
	Currency    string           `json:"currency"`
	SourceTypes map[string]int64 `json:"source_types"`
}

// retrieve is what Stripe holds for the platform now: what can be sent, what is on its way, and what it keeps for
// connected accounts that are below zero, of which there are none here.
func (bal *Balance) retrieve() answer {
	totals := map[string]int64{}
	for _, b := range bal.store.Balance.Objects {
		totals[b.Currency] += b.Net
	}
	out := struct {
		Object    string          `json:"object"`
		Available []balanceAmount `json:"available"`
		Reserved  []balanceAmount `json:"connect_reserved"`
		Livemode  bool            `json:"livemode"`
		Pending   []balanceAmount `json:"pending"`
	}{Object: "balance", Available: []balanceAmount{}, Reserved: []balanceAmount{}, Pending: []balanceAmount{}}
	if len(totals) == 0 {
		totals["usd"] = 0
	}
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		amount := func(cents int64) balanceAmount {
			return balanceAmount{cents, currency, map[string]int64{"card": cents}}
		}
		now := bal.available(currency)
		out.Available, out.Pending = append(out.Available, amount(now)), append(out.Pending, amount(totals[currency]-now))
		out.Reserved = append(out.Reserved, amount(0))
	}
	return ok(out)
}

func (bal *Balance) routes(f *front) {
	f.onGet("/v1/balance", func(*http.Request) answer { return bal.retrieve() })
	f.onGet("/v1/balance_transactions", func(r *http.Request) answer {
		keep := func(q url.Values, b *balanceTx) bool {
			since, err := strconv.ParseInt(q.Get("created[gte]"), 10, 64)
			until, err2 := strconv.ParseInt(q.Get("created[lt]"), 10, 64)
			return (err != nil || b.Created >= since) && (err2 != nil || b.Created < until) &&
				(q.Get("source") == "" || b.Source == q.Get("source"))
		}
		if !expands(r.URL.Query(), "data.source") {
			return pageOf(&bal.store.Balance, r, keep)
		}
		whole := shelf[balanceTx]{Objects: map[string]*balanceTx{}, Order: bal.store.Balance.Order}
		for id, b := range bal.store.Balance.Objects {
			shown := *b
			shown.Source = bal.source(b.Source)
			whole.Objects[id] = &shown
		}
		return pageOf(&whole, r, func(q url.Values, b *balanceTx) bool { return keep(q, bal.store.Balance.Objects[b.ID]) })
	})
	f.onGet("/v1/balance_transactions/{id}", func(r *http.Request) answer {
		if b := bal.store.Balance.get(r.PathValue("id")); b != nil {
			return ok(b)
		}
		return missing("balance transaction", r.PathValue("id"))
	})
}

// reporting is the category of a kind of change.
var reporting = map[string]string{
	"charge": "charge", "refund": "refund", "refund_failure": "refund_failure", "adjustment": "dispute",
	"transfer": "transfer", "transfer_refund": "transfer_reversal", "stripe_fee": "fee", "payout": "payout",
}

// source is the object that an id of a change's source names, whole; the id when we do not keep such objects.
func (bal *Balance) source(id any) any {
	name, _ := id.(string)
	if c := bal.store.Charges.get(name); c != nil {
		return c
	}
	if r := bal.store.Refunds.get(name); r != nil {
		return r
	}
	if d := bal.store.Disputes.get(name); d != nil {
		return d
	}
	if t := bal.store.Transfers.get(name); t != nil {
		return t.shown()
	}
	if x := reversalByID(&bal.store.Transfers, name); x != nil {
		return x
	}
	return id
}

// book changes the balance by cents (negative: out of it) less a fee. kind is Stripe's type: charge, refund,
// refund_failure, adjustment, transfer, transfer_refund, stripe_fee, payout.
func (bal *Balance) book(kind, source, currency string, cents, fee int64) *balanceTx {
	b := &balanceTx{
		ID:          newID("txn"),
		Object:      "balance_transaction",
		Amount:      cents,
		Fee:         fee,
		FeeDetails:  []feeDetail{},
		Net:         cents - fee,
		Currency:    currency,
		Type:        kind,
		Reporting:   reporting[kind],
		Source:      source,
		Status:      "available",
		AvailableOn: bal.store.now(),
		Created:     bal.store.now(),
	}
	if kind == "charge" && bal.settleAfter > 0 {
		b.AvailableOn, b.Status = bal.store.clock().Add(bal.settleAfter).Unix(), "pending"
	}
	if fee != 0 {
		b.FeeDetails = []feeDetail{{
			Amount:      fee,
			Currency:    currency,
			Description: orNull("Stripe processing fees"),
			Type:        "stripe_fee",
		}}
	}
	return bal.store.Balance.put(b.ID, b)
}

// Stray changes the balance behind Muster's back, such as a payment made in Stripe's dashboard. It returns the id of
// the balance transaction.
func (bal *Balance) Stray(kind, currency string, cents int64) string {
	bal.store.mu.Lock()
	defer bal.store.mu.Unlock()
	b := bal.book(kind, newID("x"), currency, cents, 0)
	bal.store.save()
	return b.ID
}

// Cents is what Stripe holds for the platform.
func (bal *Balance) Cents(currency string) (cents int64) {
	bal.store.mu.Lock()
	defer bal.store.mu.Unlock()
	for _, b := range bal.store.Balance.Objects {
		if b.Currency == currency {
			cents += b.Net
		}
	}
	return cents
}
