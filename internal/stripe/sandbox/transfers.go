package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

type transfer struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Amount      int64             `json:"amount"`
	Reversed    int64             `json:"amount_reversed"`
	BalanceTx   string            `json:"balance_transaction"`
	Created     int64             `json:"created"`
	Currency    string            `json:"currency"`
	Description *string           `json:"description"`
	Destination string            `json:"destination"`
	Livemode    bool              `json:"livemode"`
	Metadata    map[string]string `json:"metadata"`
	Reversals   reversalList      `json:"reversals"`
	AllReversed bool              `json:"reversed"`
	Source      *string           `json:"source_transaction"`
	SourceType  string            `json:"source_type"`
	Group       *string           `json:"transfer_group"`
}

type reversalList struct {
	Object  string              `json:"object"`
	Data    []*transferReversal `json:"data"` // newest first
	HasMore bool                `json:"has_more"`
	URL     string              `json:"url"`
}

type transferReversal struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	Amount    int64             `json:"amount"`
	BalanceTx string            `json:"balance_transaction"`
	Created   int64             `json:"created"`
	Currency  string            `json:"currency"`
	Metadata  map[string]string `json:"metadata"`
	Transfer  string            `json:"transfer"`
}

// shownReversals is how many a transfer shows; the rest is listed.
const shownReversals = 10

// Transfers are what the platform sends to connected accounts.
type Transfers struct {
	store   *store
	events  *events
	balance *Balance
}

func (ts *Transfers) routes(f *front) {
	f.onPost("/v1/transfers", ts.create)
	f.onGet("/v1/transfers", func(r *http.Request) answer {
		whole := shelf[transfer]{Objects: map[string]*transfer{}, Order: ts.store.Transfers.Order}
		for id, t := range ts.store.Transfers.Objects {
			whole.Objects[id] = t.shown()
		}
		return pageOf(&whole, r, func(q url.Values, t *transfer) bool {
			return (q.Get("destination") == "" || t.Destination == q.Get("destination")) &&
				(q.Get("transfer_group") == "" || t.Group != nil && *t.Group == q.Get("transfer_group"))
		})
	})
	f.onGet("/v1/transfers/{id}", func(r *http.Request) answer {
		if t := ts.store.Transfers.get(r.PathValue("id")); t != nil {
			return ok(t.shown())
		}
		return missing("transfer", r.PathValue("id"))
	})
	f.onPost("/v1/transfers/{id}/reversals", func(r *http.Request, form url.Values) answer {
		t := ts.store.Transfers.get(r.PathValue("id"))
		if t == nil {
			return missing("transfer", r.PathValue("id"))
		}
		cents := t.Amount - t.Reversed
		if form.Get("amount") != "" {
			n, err := strconv.ParseInt(form.Get("amount"), 10, 64)
			if err != nil || n < 1 {
				return invalid("amount", "Invalid positive integer")
			}
			cents = n
		}
		if cents < 1 || cents > t.Amount-t.Reversed {
			return invalid("amount", "The reversal is of more than is left of the transfer")
		}
		return ok(ts.reverse(t, cents, nested(form, "metadata")))
	})
	f.onGet("/v1/transfers/{id}/reversals", func(r *http.Request) answer {
		t := ts.store.Transfers.get(r.PathValue("id"))
		if t == nil {
			return missing("transfer", r.PathValue("id"))
		}
		var all shelf[transferReversal]
		for _, x := range slices.Backward(t.Reversals.Data) {
			all.put(x.ID, x)
		}
		return pageOf(&all, r, func(url.Values, *transferReversal) bool { return true })
	})
}

// shown is the transfer with its last reversals only.
func (t *transfer) shown() *transfer {
	out := *t
	if len(t.Reversals.Data) > shownReversals {
		out.Reversals.Data, out.Reversals.HasMore = t.Reversals.Data[:shownReversals], true
	}
	return &out
}

func (ts *Transfers) create(_ *http.Request, form url.Values) answer {
	cents, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	if err != nil || cents < 1 {
		return invalid("amount", "Invalid positive integer")
	}
	a := ts.store.Accounts.get(form.Get("destination"))
	refused := apiError{Status: 400, Type: "invalid_request_error"}
	switch {
	case a == nil:
		refused.Param, refused.Message = "destination", "No such destination: '"+form.Get("destination")+"'"
		return refused.answer()
	case a.Gone:
		return accountGone(a.ID)
	case a.Capabilities["transfers"] != "active":
		refused.Code = "insufficient_capabilities_for_transfer"
		refused.Message = "Your destination account needs to have at least one of the following capabilities enabled: " +
			"transfers, crypto_transfers, legacy_payments"
		return refused.answer()
	case cents > ts.balance.available(form.Get("currency")):
		refused.Code, refused.Message = "balance_insufficient", "You have insufficient available funds in your Stripe "+
			"account."
		return refused.answer()
	}
	id := newID("tr")
	t := &transfer{
		ID:          id,
		Object:      "transfer",
		Amount:      cents,
		Created:     ts.store.now(),
		Currency:    form.Get("currency"),
		Description: orNull(form.Get("description")),
		Destination: a.ID,
		Metadata:    nested(form, "metadata"),
		SourceType:  "card",
		Group:       orNull(form.Get("transfer_group")),
		Reversals:   reversalList{Object: "list", Data: []*transferReversal{}, URL: "/v1/transfers/" + id + "/reversals"},
	}
	t.BalanceTx = ts.balance.book("transfer", id, t.Currency, -cents, 0).ID
	ts.store.Transfers.put(id, t)
	ts.events.emit("transfer.created", t)
	return ok(t)
}

// reverse takes cents of a transfer back into the balance.
func (ts *Transfers) reverse(t *transfer, cents int64, meta map[string]string) *transferReversal {
	x := &transferReversal{
		ID:       newID("trr"),
		Object:   "transfer_reversal",
		Amount:   cents,
		Created:  ts.store.now(),
		Currency: t.Currency,
		Metadata: meta,
		Transfer: t.ID,
	}
	x.BalanceTx = ts.balance.book("transfer_refund", x.ID, t.Currency, cents, 0).ID
	t.Reversals.Data = append([]*transferReversal{x}, t.Reversals.Data...)
	t.Reversed += cents
	t.AllReversed = t.Reversed == t.Amount
	ts.events.emit("transfer.reversed", t.shown())
	return x
}

// reversalByID finds a reversal in the transfer it belongs to; nil: there is none.
func reversalByID(transfers *shelf[transfer], id string) *transferReversal {
	for _, t := range transfers.Objects {
		for _, x := range t.Reversals.Data {
			if x.ID == id {
				return x
			}
		}
	}
	return nil
}

// Total is how many transfers an account has received, and what of them was not taken back; "" is all accounts.
func (ts *Transfers) Total(accountID string) (n int, cents int64) {
	ts.store.mu.Lock()
	defer ts.store.mu.Unlock()
	for _, t := range ts.store.Transfers.Objects {
		if accountID == "" || t.Destination == accountID {
			n++
			cents += t.Amount - t.Reversed
		}
	}
	return n, cents
}

// IDs are the ids of all transfers, oldest first.
func (ts *Transfers) IDs() []string {
	ts.store.mu.Lock()
	defer ts.store.mu.Unlock()
	return slices.Clone(ts.store.Transfers.Order)
}

// Reverse takes money back without Muster, as a person can in Stripe's dashboard. It returns the reversal's id,
// "" when there is not so much left.
func (ts *Transfers) Reverse(transferID string, cents int64) string {
	ts.store.mu.Lock()
	defer ts.store.mu.Unlock()
	t := ts.store.Transfers.get(transferID)
	if t == nil || cents < 1 || cents > t.Amount-t.Reversed {
		return ""
	}
	x := ts.reverse(t, cents, map[string]string{})
	ts.store.save()
	return x.ID
}
